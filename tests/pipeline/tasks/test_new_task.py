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
TOPICS = Task(
    "topics",
    registry.CLASSIFICATION,
    Hyperparameters(learning_rate=3e-3, batch_size=8, dropout=0.0, steps=6, warmup_steps=2, max_length=32),
    labels=("culture", "politics", "sport"),
    metrics=("matthews", "accuracy"),
    files=GlueFiles("Topics", ("headline",), label="topic", index="number"),
)


def write_files(root: Path) -> None:
    """The TSVs of the task below `root`."""
    rng = np.random.default_rng(0)
    (root / "Topics").mkdir(parents=True)
    for split, size in SIZES.items():
        texts = list(sentences(rng, size))
        if split == "test":
            rows = [("number", "headline"), *((str(100 + number), text) for number, text in enumerate(texts))]
        else:
            rows = [("headline", "topic"), *((text, TOPICS.labels[number_of(text, 3)]) for text in texts)]
        content = "".join("\t".join(row) + "\n" for row in rows)
        (root / "Topics" / f"{split}.tsv").write_text(content, encoding="utf-8")


def train(root: Path, init: Path) -> str:
    """Registers the task, then runs the commands of a user. Returns what they printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        registry.TASKS[TOPICS.name] = TOPICS
        words = ["--task", TOPICS.name, "--init", str(init), "--data", str(root)]
        runs = [str(root / f"runs-{number}") for number in range(2)]
        for number, run in enumerate(runs):
            assert finetune.main([*words, "--output", f"{run}/topics", "--seed", str(number)]) == 0
        compared = ["compare", "--runs", runs[0], "--random", runs[1], "--out", str(root / "comparison")]
        assert evaluate.main(compared) == 0
        assert evaluate.main(["ensemble", "--runs", *runs, "--out", str(root / "mean")]) == 0
    return printed.getvalue()


def test_a_new_task_is_trained_submitted_exported_compared_and_averaged(corpus, tmp_path):
    write_files(tmp_path)
    export(tmp_path / "init", corpus.vocabulary, num_hidden_layers=1, intermediate_size=32)
    printed = processes.run(1, train, tmp_path, tmp_path / "init", scratch=tmp_path)
    run = tmp_path / "runs-0" / "topics"
    results = json.loads((run / "results.json").read_text())
    assert (results["task"], results["steps"], results["examples"]) == ("topics", 6, SIZES)
    found = results["hyperparameters"]
    assert (found["learning_rate"], found["train_batch_size"], found["max_length"]) == (3e-3, 8, 32)
    # The labels are those of the file, in the order of the task's names.
    dev = Logits.load(run / "logits" / "dev.npz")
    lines = [line.split("\t")[-1] for line in (tmp_path / "Topics" / "dev.tsv").read_text().splitlines()[1:]]
    labels = {str(number): TOPICS.labels.index(line) for number, line in enumerate(lines)}
    assert dict(zip(dev.ids.tolist(), dev.labels.tolist())) == labels
    assert results["metrics"] == {"dev": TOPICS.kind.metrics(TOPICS, dev)}
    # Evaluations of the training log have the same names, and the best step is chosen by the task's score.
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scores = {record["step"]: record["matthews"] for record in records if record["split"] == "eval"}
    assert scores[results["best_step"]] == max(scores.values())
    assert "95 % interval" in printed

    predicted = Logits.load(run / "logits" / "test.npz").predictions()
    header, *rows = [line.split("\t") for line in (run / "submission" / "Topics.tsv").read_text().splitlines()]
    assert header == ["index", "prediction"]
    assert rows == [[str(100 + number), TOPICS.labels[label]] for number, label in enumerate(predicted)]

    config = transformers.AutoModelForSequenceClassification.from_pretrained(run / "export").config
    assert (config.id2label, config.finetuning_task) == (dict(enumerate(TOPICS.labels)), "topics")

    (row,) = json.loads((tmp_path / "comparison" / "comparison.json").read_text())
    assert (row["task"], row["split"], row["metric"], row["examples"]) == ("topics", "dev", "matthews", SIZES["dev"])
    ensemble = json.loads((tmp_path / "mean" / "topics" / "results.json").read_text())
    assert (ensemble["members"], set(ensemble["metrics"]["dev"])) == (2, set(TOPICS.metrics))


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
