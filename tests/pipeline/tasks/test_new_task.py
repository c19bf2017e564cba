"""A task is added in one place, the registry; then it is trained, evaluated, submitted, exported and compared."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import transformers

from pipeline import evaluate, finetune
from pipeline.analysis.comparison import estimate_of
from pipeline.tasks import registry
from pipeline.tasks.files import reading
from pipeline.tasks.files.glue import GlueFiles
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.task import Hyperparameters, Task
from tests.pipeline.conftest import sentences
from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks.own_files import number_of
from tests.pipeline.workers import processes

pytestmark = pytest.mark.slow

SIZES = {"train": 48, "dev": 25, "test": 7}
HYPERPARAMETERS = Hyperparameters(learning_rate=3e-3, batch_size=8, dropout=0.0, steps=6, warmup_steps=2, max_length=32)
TOPICS = Task(
    "topics",
    registry.CLASSIFICATION,
    HYPERPARAMETERS,
    labels=("culture", "politics", "sport"),
    metrics=("matthews", "accuracy"),
    files=GlueFiles("Topics", ("headline",), label="topic", index="number"),
)
AGREEMENT = Task(
    "agreement",
    registry.REGRESSION,
    HYPERPARAMETERS,
    labels=("agreement",),
    metrics=("spearman",),
    value_range=(1.0, 7.0),
    files=GlueFiles("Agreement", ("question", "answer"), label="rating", index="number"),
)


def write_files(root: Path) -> None:
    """The TSVs of both tasks below `root`."""
    rng = np.random.default_rng(0)
    for split, size in SIZES.items():
        first, second = list(sentences(rng, size)), list(sentences(rng, size))
        topics = [TOPICS.labels[number_of(text, 3)] for text in first]
        ratings = [f"{1 + 6 * number_of(text, 2)}" for text in first]
        numbers = [str(100 + number) for number in range(size)]
        for task, columns in (
            ("Topics", {"headline": first, "topic": topics}),
            ("Agreement", {"question": first, "answer": second, "rating": ratings}),
        ):
            names = list(columns)
            if split == "test":
                columns["number"] = numbers
                names = ["number", *names[:-1]]
            rows = [names, *zip(*(columns[name] for name in names))]
            path = root / task / f"{split}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def train(root: Path, init: Path) -> str:
    """Registers each task, then runs the commands of a user. Returns what they printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for task in (TOPICS, AGREEMENT):
            registry.TASKS[task.name] = task
            words = ["--task", task.name, "--init", str(init), "--data", str(root)]
            for number in range(2):
                output = root / f"runs-{number}" / task.name
                assert finetune.main([*words, "--output", str(output), "--seed", str(number)]) == 0
        runs = [str(root / f"runs-{number}") for number in range(2)]
        compared = ["compare", "--runs", runs[0], "--random", runs[1], "--out", str(root / "comparison")]
        assert evaluate.main(compared) == 0
        assert evaluate.main(["ensemble", "--runs", *runs, "--out", str(root / "mean")]) == 0
    return printed.getvalue()


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """The directory in which both tasks were trained, and what the commands printed."""
    root = tmp_path_factory.mktemp("new-task")
    write_files(root)
    export(root / "init", corpus.vocabulary, num_hidden_layers=1, intermediate_size=32)
    return root, processes.run(1, train, root, root / "init", scratch=root)


@pytest.mark.parametrize("task", [TOPICS, AGREEMENT], ids=lambda task: task.name)
def test_a_new_task_is_trained_and_evaluated(trained, task):
    root, printed = trained
    run = root / "runs-0" / task.name
    results = json.loads((run / "results.json").read_text())
    assert (results["task"], results["steps"], results["examples"]) == (task.name, 6, SIZES)
    found = results["hyperparameters"]
    assert (found["learning_rate"], found["train_batch_size"], found["max_length"]) == (3e-3, 8, 32)
    dev = Logits.load(run / "logits" / "dev.npz")
    assert dev.logits.shape == (SIZES["dev"], len(task.labels))
    # The labels are those of the file, in the order of the task's names.
    lines = [line.split("\t")[-1] for line in (root / task.files.directory / "dev.tsv").read_text().splitlines()[1:]]
    wanted = [float(line) if task is AGREEMENT else task.labels.index(line) for line in lines]
    assert dict(zip(dev.ids.tolist(), dev.labels.tolist())) == {str(n): label for n, label in enumerate(wanted)}
    assert results["metrics"] == {"dev": task.kind.metrics(task, dev)}
    assert set(results["metrics"]["dev"]) == set(task.metrics)
    # Evaluations of the training log have the same names, and the best step is chosen by the task's score.
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scores = {record["step"]: record[task.score] for record in records if record["split"] == "eval"}
    assert max(scores) == 6
    assert scores[results["best_step"]] == max(scores.values())
    shown = f"95 % interval of {task.score}: " if task is AGREEMENT else "majority class: "
    assert shown in printed


def test_the_submission_has_the_names_of_the_labels(trained):
    root, _ = trained
    for task in (TOPICS, AGREEMENT):
        test = Logits.load(root / "runs-0" / task.name / "logits" / "test.npz")
        predicted = dict(zip(test.ids.tolist(), test.predictions().tolist()))
        (path,) = (root / "runs-0" / task.name / "submission").iterdir()
        assert path.name == f"{task.files.directory}.tsv"
        header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
        assert header == ["index", "prediction"]
        assert [number for number, _ in rows] == [str(100 + number) for number in range(SIZES["test"])]
        for number, prediction in rows:
            if task is TOPICS:
                assert prediction == task.labels[predicted[number]]
            else:
                assert float(prediction) == pytest.approx(min(max(predicted[number], 1.0), 7.0), abs=6e-4)


def test_transformers_finds_the_labels_in_the_export(trained):
    root, _ = trained
    for task in (TOPICS, AGREEMENT):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(root / "runs-0" / task.name / "export")
        assert model.config.id2label == dict(enumerate(task.labels))
        assert model.config.finetuning_task == task.name


def test_runs_of_a_new_task_are_compared_and_averaged(trained):
    root, _ = trained
    compared = {row["task"]: row for row in json.loads((root / "comparison" / "comparison.json").read_text())}
    for task in (TOPICS, AGREEMENT):
        row = compared[task.name]
        assert (row["split"], row["metric"], row["examples"]) == ("dev", task.metrics[0], SIZES["dev"])
        assert row["interval"][0] <= row["value"] <= row["interval"][1]
        ensemble = json.loads((root / "mean" / task.name / "results.json").read_text())
        assert (ensemble["members"], set(ensemble["metrics"]["dev"])) == (2, set(task.metrics))


def test_a_task_made_at_run_time_needs_no_registry(tmp_path):
    assert TOPICS.name not in registry.TASKS
    write_files(tmp_path)
    splits = reading.read(TOPICS, str(tmp_path))
    assert {split: len(examples) for split, examples in splits.items()} == SIZES
    labels = np.array([example.label for example in splits["dev"]])
    ids = np.array([example.id for example in splits["dev"]])
    right = Logits(ids, np.eye(3, dtype=np.float32)[labels], labels)
    assert TOPICS.kind.metrics(TOPICS, right) == {"matthews": pytest.approx(1.0), "accuracy": 1.0}
    estimate = estimate_of(TOPICS, right)
    assert (estimate.value, estimate.majority) == (pytest.approx(100.0), 0.0)
    (path,) = TOPICS.write_submission("test", right, tmp_path)
    assert path.read_text().splitlines()[1] == f"0\t{TOPICS.labels[labels[0]]}"
