"""Predictions in files and submissions; metrics against scikit-learn and by hand, and intervals against scipy's."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from common import intervals
from common.errors import UserError
from pipeline.analysis.comparison import read_predictions
from pipeline.tasks import metrics
from pipeline.tasks.kinds import answers
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


def compute(names, predictions, labels):
    """The metrics with these names, or of a task."""
    names = names if isinstance(names, tuple) else TASKS[names].metrics
    return {name: metrics.METRICS[name](np.asarray(predictions), np.asarray(labels)) for name in names}


def test_glue_metrics_of_a_table_made_by_hand():
    labels = [1, 1, 1, 1, 0, 0]
    predictions = [1, 1, 0, 1, 1, 0]  # 3 hits, 1 miss, 1 false alarm, 1 rejection
    assert compute("sst2", predictions, labels) == {"accuracy": pytest.approx(4 / 6)}
    assert compute("mrpc", predictions, labels) == pytest.approx({"accuracy": 4 / 6, "f1": 6 / 8})
    # (3*1 - 1*1) / sqrt((3+1)(3+1)(1+1)(1+1))
    assert compute("cola", predictions, labels) == pytest.approx({"matthews": 2 / 8, "accuracy": 4 / 6})
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert compute("stsb", [0, 1, 1, 9], [1, 2, 3, 4]) == pytest.approx(
        {"pearson": 13.5 / np.sqrt(5 * 52.75), "spearman": 4.5 / np.sqrt(5 * 4.5)}
    )


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning", "ignore:A single label was found")
def test_metrics_of_classes_are_those_of_scikit_learn(most, pairs):
    predictions, labels = np.minimum(np.array(pairs), most).T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compute(("f1_macro", "matthews", "f1"), predictions, labels)
    assert found["f1_macro"] == pytest.approx(f1_score(labels, predictions, average="macro", zero_division=0.0))
    assert found["matthews"] == pytest.approx(matthews_corrcoef(labels, predictions))
    assert found["f1"] == pytest.approx(f1_score(labels == 1, predictions == 1, zero_division=0.0))


def test_constant_values_have_no_correlation():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compute("stsb", [2.0, 2.0, 2.0], [1, 2, 3]) == {"pearson": 0.0, "spearman": 0.0}
        assert compute("stsb", [2.0 + 1e-15, 2.0, 2.0], [1, 2, 3])["pearson"] == 0.0
        assert compute("stsb", [2.0], [1.0]) == {"pearson": 0.0, "spearman": 0.0}
        assert compute("cola", [1, 1, 1], [1, 0, 1])["matthews"] == 0.0


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The  Eiffel-Tower, (in) Paris!", "eiffeltower in paris"),
        ("A.N. Other", "other"),  # punctuation is removed first; so "A.N." becomes an article
        ("l’a–b “the”", "l’ –b “ ”"),  # only ASCII punctuation is removed; an article is a whole word
        ("É e\u0301 É", "é e\u0301 é"),
        ("a an the . ,", ""),
    ],
)
def test_answers_as_squad_compares_them(text, left):
    assert answers.normalise_answer(text) == left


def test_squad_1_by_hand():
    gold = {"a": ["the cat"], "b": ["in 1066", "1066"], "c": ["two blue birds"], "d": ["x"], "e": ["The"]}
    predictions = {"a": "Cat!", "b": "year 1066", "c": "blue birds sing", "d": "", "e": "the"}
    found = answers.squad(predictions, gold)
    # a: both; b: F1 2/3 with its second answer; c: 2 of 3 words; e: equal, yet without a common word.
    assert found == pytest.approx({"exact": 40.0, "f1": 20 * (1 + 2 / 3 + 2 / 3), "total": 5, "missing": 0})


def test_questions_of_equal_null_odds_are_answered_in_their_order():
    gold, predictions = {"a": ["x"], "b": []}, {"a": "x", "b": "y"}
    assert answers.squad(predictions, gold, {"a": 0.5, "b": 0.5})["best_exact"] == 100.0
    assert answers.squad(predictions, gold, {"b": 0.5, "a": 0.5})["best_exact"] == 50.0


def test_squad_2_by_hand():
    gold = {"a": ["red"], "b": [], "c": [], "d": ["blue sky"]}
    predictions = {"a": "red", "b": "", "c": "green", "d": "sky"}
    odds = {"a": -4.0, "d": -0.5, "c": -0.3, "b": 4.0}
    found = answers.squad(predictions, gold, odds)
    assert (found["exact"], found["f1"]) == pytest.approx((50.0, 100 * (1 + 1 + 2 / 3) / 4))
    assert (found["HasAns_exact"], found["NoAns_exact"]) == (50.0, 50.0)
    # a is answered, b and c are not; d counts as wrong
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, -4.0)
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(100 * (3 + 2 / 3) / 4), -0.5)
    assert answers.squad(predictions, gold, odds | {"c": 0.1})["f1"] == found["best_f1"]
    assert answers.squad(predictions, gold, odds | {"c": 0.0})["f1"] == found["f1"]
    # The accepted answer is empty after normalisation: the question counts as answerable, and "" is right.
    article = answers.squad({"e": ""}, {"e": ["The"]}, {"e": -2.0})
    assert (article["exact"], article["HasAns_exact"], article["best_exact"]) == (100.0, 100.0, 100.0)
    assert answers.squad({"e": ""}, {"e": ["The"]}, {"e": 2.0})["exact"] == 0.0


def predicted(task, predictions, labels):
    """The kind of a task, and logits whose predictions are these classes."""
    rows = np.eye(len(TASKS[task].labels))[predictions]
    return TASKS[task].kind, Logits(np.arange(len(labels)).astype(str), rows, labels)


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 30), (30, 30), (7, 20)])
def test_an_accuracy_has_wilsons_interval(successes, trials):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    kind, found = predicted("sst2", np.array([1] * (trials - successes) + [0] * successes), np.zeros(trials, dtype=int))
    assert kind.interval(TASKS["sst2"], "accuracy", found) == pytest.approx(tuple(expected), abs=1e-6)


def test_a_bootstrap_of_a_mean_has_the_interval_of_the_normal_distribution():
    values = np.random.default_rng(3).normal(size=400)
    low, high = intervals.bootstrap_interval(lambda rows: values[rows].mean(), 400)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.12 * half)


@pytest.mark.parametrize(("task", "metric"), [("mrpc", "f1"), ("cola", "matthews")])
def test_other_metrics_have_a_bootstrap_over_the_examples(task, metric):
    generator = np.random.default_rng(0)
    labels = generator.random(300) < 0.3
    kind, found = predicted(task, (labels ^ (generator.random(300) < 0.2)).astype(int), labels.astype(int))
    expected = intervals.bootstrap_interval(kind.statistic(TASKS[task], metric, found), 300)
    assert kind.interval(TASKS[task], metric, found) == expected
    assert expected[0] < kind.metrics(TASKS[task], found)[metric] < expected[1]
