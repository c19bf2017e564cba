"""Metrics of GLUE, SQuAD and RACE against scikit-learn, by hand, and against a second implementation."""

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, matthews_corrcoef

from pipeline.tasks import metrics
from pipeline.tasks.kinds import answers
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from tests.pipeline.tasks import squad_reference

WORDS = ["the", "The", "a", "an", "an.", "A–b", "é", "é", "Café", "!", "U.S.", "US", "—", "x_y", "xy", "\xa0", "ﬁ", "İ"]


def compute(task, predictions, labels):
    """The metrics of a task, by its name."""
    return compute_all(TASKS[task].metrics, predictions, labels)


def compute_all(names, predictions, labels):
    """The metrics with these names."""
    return {name: metrics.find_metric(name).function(*metrics.check_values(predictions, labels)) for name in names}


TEXTS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join) | st.text(max_size=8)


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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_every_table_of_two_classes_has_metrics_and_no_warnings(pairs):
    predictions, labels = np.array(pairs).T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cola, mrpc = compute("cola", predictions, labels), compute("mrpc", predictions, labels)
        compute("stsb", predictions, labels)
    hits = int((predictions & labels).sum())
    assert mrpc["f1"] == pytest.approx(2 * hits / max(1, predictions.sum() + labels.sum()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cola["matthews"] == pytest.approx(matthews_corrcoef(labels, predictions))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_metrics_of_several_classes_are_those_of_scikit_learn(pairs):
    predictions, labels = np.array(pairs).T
    found = compute_all(("accuracy", "f1_macro", "matthews"), predictions, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["f1_macro"] == pytest.approx(f1_score(labels, predictions, average="macro", zero_division=0.0))
        assert found["matthews"] == pytest.approx(matthews_corrcoef(labels, predictions))


def test_constant_values_have_no_correlation():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compute("stsb", [2.0, 2.0, 2.0], [1, 2, 3]) == {"pearson": 0.0, "spearman": 0.0}
        assert compute("stsb", [2.0 + 1e-15, 2.0, 2.0], [1, 2, 3])["pearson"] == 0.0
        assert compute("stsb", [2.0], [1.0]) == {"pearson": 0.0, "spearman": 0.0}
        assert compute("cola", [1, 1, 1], [1, 0, 1])["matthews"] == 0.0


@pytest.mark.parametrize(
    ("name", "predictions", "labels", "message"),
    [
        ("acuracy", [1], [1], "no metric 'acuracy'; choose from accuracy, f1"),
        ("accuracy", [], [], "above 0"),
        ("accuracy", [1, 2], [1], "not lists of one length"),
        ("pearson", [float("nan")], [1.0], "NaN"),
    ],
)
def test_values_without_a_metric_are_an_error(name, predictions, labels, message):
    with pytest.raises(ValueError, match=message):
        compute_all((name,), predictions, labels)


def test_race_by_level():
    levels = ["middle", "high", "middle", "high", "high"]
    labels, predictions = np.array([0, 1, 2, 0, 0]), np.array([0, 1, 2, 3, 0])
    found = Logits(np.arange(5).astype(str), np.eye(4)[predictions], labels, np.array(levels))
    wanted = {"accuracy": 4 / 5, "middle": 1.0, "high": 2 / 3}
    assert TASKS["race"].kind.metrics(TASKS["race"], found) == pytest.approx(wanted)
    unknown = dataclasses.replace(found, levels=np.array([""] * 5))
    assert TASKS["race"].kind.metrics(TASKS["race"], unknown) == {"accuracy": 4 / 5}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The  Eiffel-Tower, (in) Paris!", "eiffeltower in paris"),
        ("A.N. Other", "other"),  # punctuation is removed first; so "A.N." becomes an article
        ("theatre an\tapple", "theatre apple"),
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


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_squad_1_equals_a_second_implementation(data):
    gold = data.draw(st.dictionaries(st.sampled_from("abcdef"), st.lists(TEXTS, min_size=1, max_size=3), min_size=1))
    predictions = {question: data.draw(TEXTS) for question in gold}
    found = answers.squad(predictions, gold)
    expected = squad_reference.evaluate_1(predictions, gold)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_squad_2_equals_a_second_implementation(data):
    gold = data.draw(st.dictionaries(st.sampled_from("abcdef"), st.lists(TEXTS, max_size=2), min_size=1))
    predictions = {question: data.draw(TEXTS) for question in gold}
    values = data.draw(st.lists(st.floats(-3, 3), min_size=len(gold), max_size=len(gold), unique=True))
    odds = dict(zip(gold, values))
    found = answers.squad(predictions, gold, odds)
    expected = squad_reference.evaluate_2(predictions, gold, odds)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found.keys() == expected.keys() | {"missing"}
