"""The study: what it finds and chooses, and a whole small one, stopped and resumed."""

import dataclasses
import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shared import commands
from benchmarks.study import __main__ as study
from benchmarks.study import finetune, page, tasks, text
from benchmarks.study.__main__ import tokens_a_second
from benchmarks.study.plan import FULL, SMALL
from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary
from pipeline.reproduce import find_task_data
from pipeline.tasks.files import reading
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import find_task
from tests.data_prep.corpora import make_sentences
from tests.pipeline.tasks import task_files
from tests.pipeline.workers.forked import ForkedCommands

RESULTS = sorted((Path(page.__file__).parents[1] / "results" / "study").rglob("*.json"))


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


def test_the_corpora_of_a_data_root(root: Path, tmp_path: Path) -> None:
    found = text.find_corpora(root)
    assert [(corpus.name, corpus.source) for corpus in found] == [("intros", "jsonl"), ("books", "books")]
    with pytest.raises(UserError, match="has no text; put exports"):
        text.find_corpora(tmp_path)
    for name in ("books/a.txt", "wikipedia/books.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"wikipedia/books\.jsonl has the name of another corpus; rename it"):
        text.find_corpora(tmp_path)


def contents(examples: object) -> list[str]:
    """The examples without their ids, sorted."""
    return sorted(str({**vars(one), "id": ""}) for one in examples)  # type: ignore[attr-defined]


WHOLE = dataclasses.replace(FULL, max_choice_samples=10**9, max_choice_tokens=10**9, max_dev_tokens=10**9)


@pytest.mark.parametrize("name", ["cola", "squad2", "race"])
def test_settings_are_chosen_on_training_examples_only(
    root: Path, tmp_path: Path, vocabulary: Vocabulary, name: str
) -> None:
    task = find_task(name)
    directory = find_task_data(root, tasks.fits)[name]
    official = reading.read(task, str(directory))
    ready = tasks.prepare(task, directory, tmp_path / name, vocabulary, WHOLE)
    final, choice = (reading.read(task, str(place)) for place in (ready.final, ready.choice))
    assert set(final) == set(choice) == {"train", task.dev_splits[0]}
    assert contents(final["train"]) == contents(official["train"])
    assert contents(final[task.dev_splits[0]]) == contents(official[task.dev_splits[0]])
    assert contents([*choice["train"], *choice[task.dev_splits[0]]]) == contents(official["train"])
    assert not set(contents(choice["train"])) & set(contents(choice[task.dev_splits[0]]))
    limits = dataclasses.replace(FULL, max_choice_samples=2, max_dev_tokens=1)
    limited = tasks.prepare(task, directory, tmp_path / "limited", vocabulary, limits)
    assert limited.final_samples == ready.final_samples
    assert limited.choice_samples <= ready.choice_samples
    pieces = tasks.passages(task, tasks.pieces_of(task, task.files.find(task, limited.final)[task.dev_splits[0]]))
    assert len(pieces.texts) == 1
    assert set(contents(reading.read(task, str(limited.final))[task.dev_splits[0]])) <= set(
        contents(official[task.dev_splits[0]])
    )


STARTS = finetune.Start("pre-trained", Path("export")), finetune.Start("random", Path("export"), random=True)


def ready_for(train_samples: int, choice_samples: int = 0) -> tasks.Prepared:
    """A task with as many samples."""
    return tasks.Prepared(Path("final"), Path("choice"), train_samples, choice_samples or train_samples, 30.0, 10)


def test_the_choice_is_the_best_mean_of_both_starts(tmp_path: Path) -> None:
    task = find_task("rte")
    plan = dataclasses.replace(FULL, learning_rates=(3e-4, 1e-3, 1e-4))
    jobs = finetune.trials(task, ready_for(100), 1e6, plan, STARTS, tmp_path / "choice")
    scores = {1e-4: (60, 50), 3e-4: (64, 52), 1e-3: (70, 45)}
    for job in jobs:
        job.out.mkdir(parents=True)
        score = scores[job.learning_rate][job.start.random]
        (job.out / "results.json").write_text(json.dumps({"metrics": {"dev": {"accuracy": score}}}))
    assert finetune.choose(jobs) == 3e-4
    for job in jobs:  # as with runs that always say the majority class
        (job.out / "results.json").write_text(json.dumps({"metrics": {"dev": {"accuracy": 52}}}))
    assert finetune.choose(jobs) == 3e-4


def test_the_steps_are_the_epochs_within_the_limit(tmp_path: Path) -> None:
    task, samples = find_task("rte"), 10_000
    few = finetune.trials(task, ready_for(64), 100 * samples, FULL, STARTS, tmp_path)
    batch = FULL.batch_size(30.0)
    assert batch == 21
    assert (FULL.batch_size(2000.0), FULL.batch_size(3.0)) == (4, 32)
    assert {job.steps for job in few} == {round(8 * 64 / batch)}
    many = finetune.trials(task, ready_for(10**6), samples, FULL, STARTS, tmp_path)
    assert [(job.learning_rate, job.start) for job in many] == [
        (rate, start) for rate in FULL.learning_rates for start in STARTS
    ]
    finals = finetune.final(task, ready_for(10**6), samples, many[0].learning_rate, FULL, STARTS, tmp_path)
    read = sum(batch * job.steps * job.seeds for job in (*many, *finals))
    assert 0.9 * samples <= read <= samples + batch * 12
    longer = finetune.trials(task, ready_for(10**6), 2 * samples, FULL, STARTS, tmp_path)
    assert not {job.out for job in many} & {job.out for job in longer}  # what was run is not taken for what would be
    chosen = sum(batch * job.steps for job in many)
    assert chosen <= finetune.CHOICE_PART * samples + batch * 6


def test_the_interval_of_a_gain_covers_other_seeds(tmp_path: Path) -> None:
    labels = np.arange(60) % 2
    right = {"pre-trained": (labels, labels, 1 - labels), "random": (1 - labels,) * 3}
    jobs = []
    for start, of_seeds in zip(STARTS, right.values(), strict=True):
        place = tmp_path / start.name
        for seed, predicted in enumerate(of_seeds):
            (place / f"seed-{seed}" / "logits").mkdir(parents=True)
            logits = np.eye(2, dtype=np.float32)[predicted]
            made = Logits(labels.astype(str) + np.arange(60).astype(str), logits, labels)
            made.save(place / f"seed-{seed}" / "logits" / "dev.npz")
        jobs.append(finetune.Job(find_task("rte"), tmp_path, 60, 16, 1e-3, start, 3, 30, place))
    result = page.result_of(*jobs)
    assert result.trained == pytest.approx(100 * 2 / 3)
    assert result.random == 0
    # All examples of a seed are alike, so only the seeds decide. Three equal draws of the last one have a part of 1/27.
    assert result.gain == pytest.approx((0, 100))
    assert result.settings == "0.001, 30 steps, 8.0 epochs"


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
    (runs,) = (tmp_path / "study" / "runs" / "final" / "rte").iterdir()
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
