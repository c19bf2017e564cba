"""The study: what it finds and chooses, and a whole small one, stopped and resumed."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shared import commands
from benchmarks.study import __main__ as study
from benchmarks.study import finetune, page, tasks
from benchmarks.study.__main__ import tokens_a_second
from benchmarks.study.plan import FULL, SMALL
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import find_task
from tests.data_prep.corpora import make_sentences
from tests.pipeline.tasks import task_files
from tests.pipeline.workers.forked import ForkedCommands


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A --data-root with books, records and tasks."""
    root = tmp_path_factory.mktemp("root")
    (root / "books" / "novels").mkdir(parents=True)
    (root / "wikipedia").mkdir()
    for number in range(40):
        sentences = make_sentences(60, seed=number)
        (root / "books" / "novels" / f"book{number}.txt").write_text("\n\n".join(sentences), encoding="utf-8")
    records = [{"text": " ".join(make_sentences(20, seed=1000 + number))} for number in range(60)]
    (root / "wikipedia" / "intros.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    task_files.write_all(root)
    return root


def jobs(samples: int, tokens: float, place: Path) -> tuple[finetune.Job, finetune.Job]:
    """The jobs of a task with as many samples of 30 tokens."""
    size = tasks.TaskSize(Path("data"), samples, 30.0, 10)
    return finetune.jobs_of(find_task("rte"), size, tokens, FULL, Path("export"), place)


def test_the_interval_of_a_gain_covers_other_seeds(tmp_path: Path) -> None:
    labels = np.arange(60) % 2
    right = (labels, labels, 1 - labels), (1 - labels,) * 3
    pair = jobs(60, 1e9, tmp_path)
    for job, of_seeds in zip(pair, right, strict=True):
        for seed, predicted in enumerate(of_seeds):
            (job.out / f"seed-{seed}" / "logits").mkdir(parents=True)
            logits = np.eye(2, dtype=np.float32)[predicted]
            made = Logits(labels.astype(str) + np.arange(60).astype(str), logits, labels)
            made.save(job.out / f"seed-{seed}" / "logits" / "dev.npz")
    result = page.result_of(*pair)
    assert result.trained == pytest.approx(100 * 2 / 3)
    assert result.random == 0
    # All examples of a seed are alike, so only the seeds decide. Three equal draws of the last one have a part of 1/27.
    assert result.gain == pytest.approx((0, 100))
    assert result.settings == f"{pair[0].steps} steps, 8.1 epochs"


@pytest.mark.slow
def test_a_whole_study_is_written_and_not_made_twice(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(commands, "subprocess", ForkedCommands)
    measured = []
    # A speed at which no limit of time is reached on any machine.
    monkeypatch.setattr(study, "tokens_a_second", lambda run: measured.append(run) or 5.0)
    words = ["--data-root", str(root), "--out", str(tmp_path / "study"), "--plan", "small", "--hours", "1"]
    words += ["--ranks", "1", "--tasks", "rte"]
    assert study.main(words) == 0
    assert tokens_a_second(*measured) > 0
    first = capsys.readouterr().out
    made = tmp_path / "study" / "page"
    assert {"study.md", "study.json", "curves.png"} <= {path.name for path in made.iterdir()}
    assert "| rte | accuracy |" in first
    record = json.loads((made / "study.json").read_text())
    (of_task,) = record["tasks"]
    assert of_task["gain"][0] <= of_task["trained"] - of_task["random"] <= of_task["gain"][1]
    # The means are those of the seeds' own results.
    (runs,) = (tmp_path / "study" / "runs" / "rte").iterdir()
    for start, shown in (("pre-trained", of_task["trained"]), ("random", of_task["random"])):
        results = [
            json.loads((runs / start / f"seed-{seed}" / "results.json").read_text()) for seed in range(SMALL.seeds)
        ]
        mean = statistics.fmean(result["metrics"]["dev"]["accuracy"] for result in results)
        assert shown == pytest.approx(100 * mean)
    assert set(record["curves"]) == {"intros", "books"}
    assert all(len(points) >= SMALL.evaluations for points in record["curves"].values())
    assert study.main(words) == 0
    again = capsys.readouterr().out
    assert again.count("done before") == first.count(" s\n")
    text = (made / "study.md").read_text()
    assert page.markdown(record) == text
    assert again.endswith(f"{text}\n")
