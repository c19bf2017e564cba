"""Tasks on a user's own files: trained, resumed, exported, predicted, averaged and compared; `transformers` agrees."""

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import transformers

from pipeline import evaluate, predict
from pipeline.analysis.comparison import read_predictions
from pipeline.checkpoint.initial_weights import task_of_run
from pipeline.finetuning import fine_tuning
from pipeline.tasks.files.tables import read_table
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from tests.docs.pages import commands_of, module_command
from tests.pipeline.conftest import REPOSITORY, run
from tests.pipeline.finetuning.finetune_runs import results
from tests.pipeline.pretraining.trained_models import export as export_model
from tests.pipeline.tasks import own_files
from tests.pipeline.workers.finetune_tasks import Start

pytestmark = pytest.mark.slow

PAGE = REPOSITORY / "docs" / "own_tasks.md"
EVERY_TASK = {
    "classification": (("arts", "science", "sports"), {"accuracy", "f1_macro"}),
    "pairs": (("0", "1"), {"accuracy", "f1_macro", "matthews"}),
    "regression": (("stars",), {"pearson", "spearman", "rmse"}),
    "tagging": (("B-NAME", "I-NAME", "O"), {"entity_f1", "entity_precision", "entity_recall", "accuracy"}),
    "multiple-choice": (("a", "b", "c", "d"), {"accuracy"}),
    "multi-label": (("a", "b", "d"), {"f1_micro", "f1_macro", "exact_match"}),
    "question-answering": ((), {"f1", "exact", "best_f1", "best_exact", "HasAns_f1", "NoAns_f1"}),
}
"""The labels and metrics of each."""
QUICK = ("--learning-rate", "0.003", "--batch-size", "16", "--eval-interval", "3", "--max-length", "48")

every_task = pytest.mark.parametrize("task", EVERY_TASK)


def words(place, task, output, *more):
    """The page's command for a task, with the files of `place`, and quicker."""
    found = filter(None, (module_command(command) for _, command in commands_of(PAGE)))
    commands = [words for module, words in found if module == "pipeline.finetune"]
    (line,) = (words for words in commands if words[words.index("--task") + 1] == task)
    for flag in ("--data", "--train-file", "--dev-file"):
        if flag in line:
            at = line.index(flag) + 1
            line[at] = str(place.files / line[at])
    line[line.index("--init") + 1], line[line.index("--output") + 1] = str(place.init), str(output)
    return [*line, *QUICK, *more]


@pytest.fixture(scope="module")
def place(corpus, tmp_path_factory):
    """An export of a small model with random weights, the files of every task, and a run of each."""
    root = tmp_path_factory.mktemp("own")
    own_files.write_all(root / "files")
    export_model(root / "init", corpus.vocabulary)
    found = SimpleNamespace(root=root, files=root / "files", init=root / "init", runs=root / "runs")
    again = Path(os.path.relpath(found.runs / "stopped"))
    more = {
        "classification": ("--test-file", str(own_files.file_of(found.files, "classification", "test"))),
        "regression": ("--task-name", "stars"),
    }
    starts = [Start(words(found, task, found.runs / task, *more.get(task, ()))) for task in EVERY_TASK]
    starts += [
        Start([
            "--task", "tagging", "--init", str(found.init), *QUICK, "--seeds", "2", "--steps", "4",
            "--train-file", str(found.files / "names" / "train.jsonl"), "--dev-file", str(found.files / "dev.conll"),
            "--test-file", str(found.files / "names" / "test.jsonl"), "--output", str(found.runs / "seeds"),
        ]),
        Start(words(found, "classification", again), stop_at=6),
        Start(["--output", str(found.runs / "stopped")]),
        Start([*words(found, "classification", found.runs / "fewer"), "--seeds", "2", *more["classification"]]),
        Start([*words(found, "classification", found.runs / "fewer"), "--seeds", "1"]),
    ]  # fmt: skip
    (root / "starts.json").write_text(json.dumps(starts))
    run(sys.executable, "-m", "tests.pipeline.workers.finetune_tasks", root / "starts.json")
    own_files.write(root / "predicted.csv", {"text": ["a"], "probability": ["b"]})
    return found


@every_task
def test_the_run_has_its_labels_metrics_and_predictions(place, task):
    found, (labels, expected) = results(place.runs / task), EVERY_TASK[task]
    assert tuple(found["own_task"]["labels"]) == labels
    assert found["examples"] == own_files.SIZES
    assert found["steps"] == 12  # three epochs of 64 examples in batches of 16
    assert set(found["metrics"]) == {"dev"}
    metrics = set(found["metrics"]["dev"])
    assert metrics == expected or (task == "question-answering" and metrics > expected)
    assert found["task"] == ("stars" if task == "regression" else task)
    assert json.loads((place.runs / task / "settings.json").read_text())["data_on_hub"] is False
    lines = [json.loads(line) for line in (place.runs / task / "submission" / "test.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["0", "1", "2", "3", "4", "5", "6"]
    for line in lines:
        values = line["prediction"] if isinstance(line["prediction"], list) else [line["prediction"]]
        assert task in ("regression", "question-answering") or set(values) <= set(labels)
    assert task_of_run(place.runs / task).labels == labels


@pytest.mark.parametrize("below", ["", "export"])
@every_task
def test_predict_equals_the_evaluation_of_training(place, task, below, tmp_path):
    source = own_files.file_of(place.files, task, "dev")
    out = tmp_path / "predicted.jsonl"
    assert predict.main(["--run", str(place.runs / task / below), "--input", str(source), "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    given = list(read_table(source).rows)
    assert [{name: row[name] for name in given[0]} for row in rows] == given
    found = task_of_run(place.runs / task)
    expected = found.kind.records(found, read_predictions(place.runs / task, found)["dev"])
    assert len(rows) == len(expected) == own_files.SIZES["dev"]
    for number, row in enumerate(rows):
        wanted = expected[str(number)]
        for name, value in wanted.items():
            is_exact = name == "prediction" and task != "regression"
            assert row[name] == (value if is_exact else pytest.approx(value, abs=1e-5))


def test_transformers_pipeline_gives_the_same_tags(place, tmp_path):
    tag = transformers.pipeline("token-classification", str(place.runs / "tagging" / "export"), ignore_labels=[])
    line = ["--run", str(place.runs / "tagging"), "--input", str(own_files.file_of(place.files, "tagging", "test"))]
    assert predict.main([*line, "--out", str(tmp_path / "out.jsonl")]) == 0
    for row in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()):
        pieces = tag(" ".join(row["tokens"]))
        starts = [piece for piece in pieces if piece["word"].startswith("▁")]
        assert [piece["entity"] for piece in starts] == row["prediction"]
        assert [float(piece["score"]) for piece in starts] == pytest.approx(row["probability"], abs=1e-4)


def test_a_stopped_run_goes_on_from_its_directory_alone(place):
    whole, stopped = place.runs / "classification", place.runs / "stopped"
    assert results(stopped)["metrics"] == results(whole)["metrics"]
    first, second = (Logits.load(directory / "logits" / "dev.npz") for directory in (whole, stopped))
    np.testing.assert_array_equal(first.logits, second.logits)


def test_what_a_later_command_does_not_have_is_gone(place):
    """Of the seeds in the summary, and of the predictions of a test file."""
    again = place.runs / "fewer"
    assert [seed["directory"] for seed in results(again)["seeds"]] == ["seed-0"]
    for seed, splits in (("seed-0", {"dev"}), ("seed-1", {"dev", "test"})):
        for directory in ("logits", "submission"):
            assert {path.name.partition(".")[0] for path in (again / seed / directory).iterdir()} <= splits
        assert (again / seed / "logits" / "test.npz").exists() is ("test" in splits)


def test_predictions_that_a_person_added_stay(tmp_path):
    (tmp_path / "logits").mkdir()
    for name in ("dev", "test", "average", "test_average"):
        (tmp_path / "logits" / f"{name}.npz").touch()
    fine_tuning._remove_others(TASKS["sst2"], {"dev"}, tmp_path)
    assert {path.stem for path in (tmp_path / "logits").iterdir()} == {"dev", "average", "test_average"}


def test_runs_are_compared(place, capsys):
    assert evaluate.main(["compare", "--runs", str(place.runs / "tagging")]) == 0
    row = capsys.readouterr().out.splitlines()[2].split(" | ")
    value = 100 * results(place.runs / "tagging")["metrics"]["dev"]["entity_f1"]
    assert [*row[4:7], row[8].split(" ")[0]] == [str(own_files.SIZES["dev"]), "entity_f1", "", f"{value:.1f}"]


@pytest.mark.parametrize(
    "lines",
    [
        b'{"text": "Fine words.", "number": "7"}\n\n{"text": "Others.", "number": "8"}\n',
        b'number\ttext\r\n7\tFine words.\r\n8\t"Others."\r\n',
    ],
)
def test_pipes(place, monkeypatch, capsysbinary, lines):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert predict.main(["--run", str(place.runs / "classification"), "--input", "-", "--out", "-"]) == 0
    rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [(row["text"], row["number"]) for row in rows] == [("Fine words.", "7"), ("Others.", "8")]
    assert all(row["prediction"] in EVERY_TASK["classification"][0] for row in rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--input": "{root}/files/questions/dev.tsv"}, "has no column 'text'; it has first, second, same; name"),
        ({"--out": "{root}/out.docx"}, "has none of the endings .jsonl, .ndjson, .csv, .tsv, .parquet"),
        ({"--out": "{root}/files/questions/dev.tsv"}, "exists already; move it away"),
        ({"--run": "{root}/runs/seeds"}, "holds a run of several seeds; name one of them, such as"),
        ({"--run": "{root}/init"}, "is not fine-tuned on a task; name a fine-tuned model, or fine-tune this one by"),
        ({"--input": "{root}/predicted.csv"}, "the input has a column 'probability', as the output will; rename it"),
    ],
)
def test_a_mistake_of_predict_is_one_line(place, tmp_path, refusal, change, message):
    line = {
        "--run": str(place.runs / "classification"),
        "--input": str(place.files / "reviews" / "test.csv"),
        "--out": str(tmp_path / "out.jsonl"),
    } | {flag: value.format(root=place.root) for flag, value in change.items()}
    assert message in refusal(predict.main, *(word for pair in line.items() for word in pair))
    assert not list(tmp_path.iterdir())
