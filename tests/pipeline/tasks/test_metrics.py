"""Metrics against scikit-learn, and by hand; their intervals against scipy's."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from common import intervals
from pipeline.tasks import metrics
from pipeline.tasks.kinds import answers
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS


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
