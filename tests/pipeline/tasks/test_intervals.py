"""Confidence intervals against scipy's, against resampled examples, and by how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from pipeline.tasks import metrics
from pipeline.tasks.kinds.answers import Answers, AnswersById, Span
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS


def predicted(task, predictions, labels):
    """Logits whose predictions are these classes or numbers."""
    values = np.asarray(predictions)
    rows = values[:, None] if TASKS[task].kind.predicts_numbers else np.eye(len(TASKS[task].labels))[values]
    return Logits(np.arange(len(values)).astype(str), rows.astype(np.float64), np.asarray(labels))


def interval(task, metric, predictions, labels):
    """The interval of a metric of a task."""
    return TASKS[task].kind.interval(TASKS[task], metric, predicted(task, predictions, labels))


def majority(task, labels):
    """The metrics of the most frequent answer."""
    kind = TASKS[task].kind
    return kind.metrics(TASKS[task], kind.majority(TASKS[task], predicted(task, labels, labels)))


def two_classes(size, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.random(size) < 0.3
    return (labels ^ (generator.random(size) < 0.2)).astype(int), labels.astype(int)


def test_an_accuracy_has_wilsons_interval():
    predictions, labels = two_classes(200)
    expected = stats.binomtest(int((predictions == labels).sum()), 200).proportion_ci(method="wilson")
    assert interval("sst2", "accuracy", predictions, labels) == pytest.approx(tuple(expected), abs=1e-6)


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 30), (30, 30), (7, 20)])
def test_wilsons_interval_is_scipys(successes, trials):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert metrics.wilson_interval(successes, trials) == pytest.approx(tuple(expected), abs=1e-6)


def test_wilsons_interval_stays_between_0_and_1():
    for trials in range(1, 200):
        assert f"{metrics.wilson_interval(0, trials)[0]:.1f}" == "0.0"
        assert metrics.wilson_interval(trials, trials)[1] <= 1.0
    assert metrics.wilson_interval(0, 0) == (0.0, 1.0)


def test_a_bootstrap_of_a_mean_has_the_interval_of_the_normal_distribution():
    values = np.random.default_rng(3).normal(size=400)
    low, high = metrics.bootstrap_interval(lambda rows: values[rows].mean(), 400)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.12 * half)


@pytest.mark.parametrize(("task", "metric"), [("mrpc", "f1"), ("cola", "matthews"), ("stsb", "spearman")])
def test_other_metrics_have_a_bootstrap_over_the_examples(task, metric):
    predictions, labels = two_classes(300)
    kind, found = TASKS[task].kind, predicted(task, predictions, labels)
    expected = metrics.bootstrap_interval(kind.statistic(TASKS[task], metric, found), 300)
    assert interval(task, metric, predictions, labels) == expected
    assert expected[0] < kind.metrics(TASKS[task], found)[metric] < expected[1]


def test_missing_classes_have_an_interval_of_zero():
    assert interval("mrpc", "f1", [0, 0], [0, 0]) == (0.0, 0.0)
    assert interval("cola", "matthews", [1, 1], [1, 0]) == (0.0, 0.0)


def test_baselines_that_always_give_one_answer():
    assert majority("sst2", [1, 1, 0]) == {"accuracy": pytest.approx(2 / 3)}
    assert majority("mrpc", [1, 1, 0])["f1"] == pytest.approx(0.8)
    assert majority("stsb", [1.5, 4.0, 2.0]) == {"pearson": 0.0, "spearman": 0.0}
    squad = TASKS["squad2"]
    span = (Span("x", 0, 1, 0.0),)
    given = AnswersById(a=Answers(span, -1.0, ("x",)), b=Answers(span, -1.0, ()), c=Answers(span, -1.0, ()))
    found = squad.kind.statistic(squad, "f1", squad.kind.majority(squad, given))
    assert found(np.arange(3)) == pytest.approx(2 / 3)


def test_the_interval_over_seeds_is_students():
    mean, half = metrics.seeds_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert math.isnan(metrics.seeds_interval([1.0])[1])
