"""Predictions in files, in the formats of the leaderboards, and averaged over runs."""

import dataclasses
import json

import numpy as np
import pytest

from common.errors import UserError
from pipeline.analysis.comparison import read_predictions
from pipeline.tasks.kinds.answers import Answers, AnswersById, Span
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS


def logits_of(rows, ids=None, **more):
    ids = np.array(ids if ids is not None else [str(row) for row in range(len(rows))])
    more = {name: np.array(values) for name, values in more.items()}
    return Logits(ids, np.array(rows, dtype=np.float32).reshape(len(rows), -1), **more)


def submit(task, split, predictions, directory):
    """The files that a submission has written into an empty directory."""
    TASKS[task].write_submission(split, predictions, directory)
    return sorted(directory.iterdir())


QUESTIONS = AnswersById(
    é1=Answers((Span("Zoë’s", 3, 8, -1.5), Span("cat", 9, 12, -0.5)), 0.25, ("Zoë",)),
    none=Answers((), 4.0, ()),
    zero=Answers((Span("cat", 9, 12, 0.0),), 0.0, ()),
    hidden=Answers((Span("cat", 9, 12, 0.0),), -2.0, None),
)


def test_logits_and_answers_are_read_back_from_their_files(tmp_path):
    written = logits_of([[1, 2], [4, 3]], ids=["a", "é"], labels=[1, 0], levels=["high", ""])
    written.save(tmp_path / "dev.npz")
    read = Logits.load(tmp_path / "dev.npz")
    for field in dataclasses.fields(Logits):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(written, field.name))
    assert read.predictions().tolist() == [1, 0]
    logits_of([[1.5]]).save(tmp_path / "test.npz")
    assert Logits.load(tmp_path / "test.npz").labels is None
    QUESTIONS.save(tmp_path / "dev.json")
    assert AnswersById.load(tmp_path / "dev.json") == QUESTIONS
    assert (len(QUESTIONS), QUESTIONS.labelled, AnswersById().labelled) == (4, False, False)


def test_files_of_another_kind_are_named_in_the_error(tmp_path):
    (tmp_path / "dev.npz").write_bytes(b"PK\x03\x04 half of it")
    (tmp_path / "dev.json").write_text('{"q": {"nbest": 3}}')
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    for name, load in (("dev.npz", Logits.load), ("other.npz", Logits.load), ("dev.json", AnswersById.load)):
        with pytest.raises(UserError, match=name):
            load(tmp_path / name)
    with pytest.raises(ValueError, match="2 rows, but 1 logits"):
        logits_of([[1, 2]], ids=["a", "b"])


@pytest.mark.parametrize(
    ("task", "split", "rows", "name", "lines"),
    [
        ("cola", "test", [[1, 0], [0, 1]], "CoLA.tsv", ["10\t1", "9\t0"]),
        ("mnli", "test_matched", [[0, 0, 1], [1, 0, 0]], "MNLI-m.tsv", ["10\tcontradiction", "9\tneutral"]),
        ("mnli", "diagnostic", [[0, 1, 0], [1, 0, 0]], "AX.tsv", ["10\tcontradiction", "9\tentailment"]),
        ("stsb", "test", [[5.25], [-0.5]], "STS-B.tsv", ["10\t0.000", "9\t5.000"]),
    ],
)
def test_a_glue_submission(tmp_path, task, split, rows, name, lines):
    (path,) = submit(task, split, logits_of(rows[::-1], ids=["10", "9"]), tmp_path)
    assert path == tmp_path / name
    # Rows are sorted by index as a number.
    assert path.read_text() == "\n".join(["index\tprediction", lines[1], lines[0], ""])


def test_only_test_sets_of_glue_are_submitted(tmp_path):
    assert submit("cola", "dev", logits_of([[0, 1]]), tmp_path) == []
    with pytest.raises(UserError, match="cola: the index 'dev-1' is no whole number"):
        submit("cola", "test", logits_of([[0, 1]], ids=["dev-1"]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_submissions_of_race_and_squad(tmp_path):
    for name in ("race", "squad2", "squad1"):
        (tmp_path / name).mkdir()
    (path,) = submit("race", "test", logits_of([[0, 0, 3, 1]], ids=["high1.txt-0"]), tmp_path / "race")
    assert json.loads(path.read_text()) == {"high1.txt-0": "C"}
    odds, answers = submit("squad2", "dev", QUESTIONS, tmp_path / "squad2")
    assert (odds.name, answers.name) == ("squad2_dev_null_odds.json", "squad2_dev_predictions.json")
    assert json.loads(answers.read_text()) == {"é1": "", "none": "", "zero": "cat", "hidden": "cat"}
    assert json.loads(odds.read_text()) == {"é1": 0.25, "none": 4.0, "zero": 0.0, "hidden": -2.0}
    first = AnswersById({name: dataclasses.replace(given, null_score=None) for name, given in QUESTIONS.items()})
    (path,) = submit("squad1", "dev", first, tmp_path / "squad1")
    assert path.name == "squad1_dev_predictions.json"


def test_the_records_of_a_class_have_its_probability_and_all():
    records = TASKS["rte"].kind.records(TASKS["rte"], logits_of([[0, np.log(3)], [1, 1]], ids=["a", "b"]))
    names = TASKS["rte"].labels
    assert records["a"] == {
        "prediction": names[1],
        "probability": pytest.approx(0.75),
        "probabilities": {names[0]: pytest.approx(0.25), names[1]: pytest.approx(0.75)},
    }
    assert list(records) == ["a", "b"]


def test_predictions_of_other_examples_are_not_aligned():
    first = logits_of([[1, 2], [3, 4]], ids=["a", "b"], labels=[0, 1])
    np.testing.assert_array_equal(logits_of([[0, 6], [2, 1]], ids=["b", "a"]).aligned(first).logits, [[2, 1], [0, 6]])
    with pytest.raises(ValueError, match="not the 2 of the other run"):
        logits_of([[1, 2], [1, 2]], ids=["a", "c"]).aligned(first)
    with pytest.raises(ValueError, match="the labels of the examples differ"):  # ids of own files are rows' numbers
        logits_of([[1, 2], [1, 2]], ids=["a", "b"], labels=[1, 1]).aligned(first)
    with pytest.raises(ValueError, match="questions are not the same"):
        AnswersById(r=QUESTIONS["none"]).aligned(QUESTIONS)


@pytest.mark.parametrize(
    "changed",
    [
        {"logits": np.zeros(2, np.float32)},
        {"logits": np.zeros((2, 0), np.float32)},
        {"logits": np.zeros((2, 2, 2), np.float32)},
        {"logits": np.array([["a"], ["b"]])},
        {"ids": np.zeros(2)},
        {"ids": np.array("a")},
        {"labels": np.array(["a", "b"])},
        {"labels": np.array([0, 2])},
        {"labels": np.array([0, -1])},
        {"labels": np.array([0.0, np.nan])},
        {"labels": np.zeros((2, 3))},
        {"lengths": np.array([2, 0])},
        {"lengths": np.array([0.5, 1.5])},
        {"lengths": np.array([[1, 1]])},
    ],
    ids=str,
)
def test_arrays_that_were_changed_by_hand_are_one_line(tmp_path, changed):
    whole = {"ids": np.array(["a", "b"]), "logits": np.zeros((2, 2), np.float32), "labels": np.array([0, 1])}
    np.savez(tmp_path / "dev.npz", **whole)
    assert len(Logits.load(tmp_path / "dev.npz")) == 2
    np.savez(tmp_path / "dev.npz", **whole | changed)
    with pytest.raises(UserError, match=r"dev\.npz holds no logits \(.*\); fine-tune again"):
        Logits.load(tmp_path / "dev.npz")


def test_logits_of_another_number_of_classes_are_one_line(tmp_path):
    (tmp_path / "logits").mkdir()
    logits_of([[1, 2, 3]]).save(tmp_path / "logits" / "dev.npz")
    assert len(read_predictions(tmp_path, TASKS["mnli"])["dev"]) == 1
    with pytest.raises(UserError, match=r"dev\.npz has 3 logits a row and sst2 2; restore it"):
        read_predictions(tmp_path, TASKS["sst2"])
