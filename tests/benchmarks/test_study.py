"""The study: what it finds and chooses, and a whole small one, stopped and resumed."""

import json
import statistics
from pathlib import Path

import pytest

from benchmarks.study import __main__ as study
from benchmarks.study import finetune, page, tasks, text
from benchmarks.study.plan import FULL, SMALL, Candidate
from common.errors import UserError
from pipeline.reproduce import find_task_data
from pipeline.tasks.files import reading
from pipeline.tasks.registry import find_task
from tests.data_prep.corpora import make_sentences
from tests.pipeline.tasks import task_files


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


@pytest.mark.parametrize("name", ["cola", "rte", "mrpc", "squad2"])
def test_settings_are_chosen_on_training_examples_only(root: Path, tmp_path: Path, name: str) -> None:
    task = find_task(name)
    directory = find_task_data(root, with_dev=True)[name]
    official = reading.read(task, str(directory))
    divided = reading.read(task, str(tasks.divide(task, directory, tmp_path / name, 1000)))

    def contents(examples: object) -> list[str]:
        return sorted(str({**vars(one), "id": ""}) for one in examples)  # type: ignore[attr-defined]

    assert contents([*divided["train"], *divided["dev"]]) == contents(official["train"])
    assert len(divided["dev"]) > 0
    limited = reading.read(task, str(tasks.divide(task, directory, tmp_path / "limited", 2)))
    assert len(limited["train"]) <= len(divided["train"])


def test_the_choice_is_the_best_mean_of_both_starts(tmp_path: Path) -> None:
    task, plan = find_task("rte"), FULL
    jobs = finetune.candidates(task, tmp_path / "data", 100, plan, tmp_path / "choice")
    scores = {(2e-4, 3): (60, 50), (2e-4, 8): (64, 52), (6e-4, 3): (70, 45), (6e-4, 8): (55, 55)}
    for job in jobs:
        job.out.mkdir(parents=True)
        score = scores[job.candidate.learning_rate, job.candidate.epochs][job.random]
        (job.out / "results.json").write_text(json.dumps({"metrics": {"dev": {"accuracy": score}}}))
    assert finetune.choose(jobs) == Candidate(2e-4, 8)


def test_the_steps_are_the_epochs_within_the_limit() -> None:
    task = find_task("rte")
    jobs = [finetune.Job(task, Path(), count, Candidate(1e-3, 3), False, 1, Path()) for count in (64, 10**6)]
    assert [finetune.steps_of(job, FULL) for job in jobs] == [6, round(FULL.max_read / 32)]


@pytest.mark.slow
def test_a_whole_study_is_written_and_not_made_twice(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--data-root", str(root), "--out", str(tmp_path / "study"), "--plan", "small", "--hours", "0.01"]
    words += ["--ranks", "1", "--tasks", "rte"]
    assert study.main(words) == 0
    first = capsys.readouterr().out
    made = tmp_path / "study" / "page"
    assert {"study.md", "study.json", "curves.png"} <= {path.name for path in made.iterdir()}
    assert "| rte | accuracy |" in first
    record = json.loads((made / "study.json").read_text())
    (of_task,) = record["tasks"]
    assert of_task["gain"][0] <= of_task["trained"] - of_task["random"] <= of_task["gain"][1]
    # The means are those of the seeds' own results.
    for start, shown in (("pre-trained", of_task["trained"]), ("random", of_task["random"])):
        results = [
            json.loads((tmp_path / "study" / "final" / start / "rte" / f"seed-{seed}" / "results.json").read_text())
            for seed in range(SMALL.seeds)
        ]
        mean = statistics.fmean(result["metrics"]["dev"]["accuracy"] for result in results)
        assert shown == pytest.approx(100 * mean)
    assert set(record["curves"]) == {"intros", "books"}
    assert all(len(points) >= 2 for points in record["curves"].values())
    assert study.main(words) == 0
    again = capsys.readouterr().out
    assert again.count("done before") == first.count(" s\n")
    assert page.tasks_table([page.TaskResult(**of_task)], SMALL.seeds) in again


def test_a_mistake_in_the_command_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert study.main(["--nothing"]) == 2
    assert study.main(["--data-root", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert study.main(["--data-root", str(tmp_path), "--out", str(tmp_path / "out"), "--plan", "huge"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    assert not (tmp_path / "out").exists()
