"""Confidence intervals against scipy's, against resampled examples, and by how often they hold the truth."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from pipeline.analysis import intervals
from pipeline.tasks import metrics
from pipeline.tasks.registry import TASKS
from pipeline.training.reporting.metrics import wilson_interval


def two_classes(size, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.random(size) < 0.3
    return (labels ^ (generator.random(size) < 0.2)).astype(int), labels.astype(int)


def test_an_accuracy_has_wilsons_interval():
    predictions, labels = two_classes(200)
    right = int((predictions == labels).sum())
    assert intervals.of_metrics(TASKS["sst2"], predictions, labels) == {
        "accuracy": pytest.approx(wilson_interval(right, 200))
    }


def test_a_correlation_has_fishers_interval():
    generator = np.random.default_rng(1)
    labels = generator.normal(size=80)
    predictions = labels + generator.normal(size=80)
    expected = stats.pearsonr(predictions, labels).confidence_interval(0.95)
    found = intervals.of_metrics(TASKS["stsb"], predictions, labels)
    assert found["pearson"] == pytest.approx(tuple(expected), abs=1e-6)
    ends = intervals.correlation_interval(0.6, 28, ranks=True)
    assert np.arctanh(ends) == pytest.approx(np.arctanh(0.6) + 1.959964 * np.array([-1, 1]) * np.sqrt(1.18 / 25))
    rank_correlation = stats.spearmanr(predictions, labels).statistic
    assert found["spearman"] == pytest.approx(intervals.correlation_interval(rank_correlation, 80, ranks=True))
    assert intervals.correlation_interval(1.0, 9) == (1.0, 1.0)
    assert intervals.correlation_interval(0.3, 3) == (-1.0, 1.0)


@pytest.mark.slow
def test_f1_and_matthews_have_the_interval_of_resampled_examples():
    predictions, labels = two_classes(300)
    generator = np.random.default_rng(2)
    drawn = [generator.integers(0, 300, 300) for _ in range(1500)]
    found = intervals.of_metrics(TASKS["mrpc"], predictions, labels) | intervals.of_metrics(
        TASKS["cola"], predictions, labels
    )
    for name, metric in (("f1", f1_score), ("matthews", matthews_corrcoef)):
        expected = np.percentile([metric(labels[rows], predictions[rows]) for rows in drawn], [2.5, 97.5])
        # The standard deviation of an end of such a bootstrap is 2 % of the length of the interval.
        assert found[name] == pytest.approx(tuple(expected), abs=0.06 * (expected[1] - expected[0]))


def test_matthews_of_three_classes_has_the_interval_of_resampled_examples():
    generator = np.random.default_rng(6)
    labels = generator.integers(0, 3, 200)
    predictions = np.where(generator.random(200) < 0.6, labels, generator.integers(0, 3, 200))
    task = dataclasses.replace(TASKS["mnli"], metrics=("matthews",))
    drawn = [generator.integers(0, 200, 200) for _ in range(800)]
    expected = np.percentile([matthews_corrcoef(labels[rows], predictions[rows]) for rows in drawn], [2.5, 97.5])
    found = intervals.of_metrics(task, predictions, labels)["matthews"]
    assert found == pytest.approx(tuple(expected), abs=0.1 * (expected[1] - expected[0]))


def test_a_metric_without_a_formula_is_resampled_example_by_example():
    predictions, labels = two_classes(100)
    found = intervals.bootstrap_interval(metrics.accuracy, predictions, labels, seed=0)
    # Accuracy is the mean of the hits, whose interval has a formula of its own.
    assert found == pytest.approx(intervals.mean_interval(predictions == labels), abs=0.02)


def test_missing_classes_have_an_interval_of_zero():
    assert intervals.of_metrics(TASKS["mrpc"], [0, 0], [0, 0])["f1"] == (0.0, 0.0)
    assert intervals.of_metrics(TASKS["cola"], [1, 1], [1, 0])["matthews"] == (0.0, 0.0)


def test_the_interval_of_a_mean_has_its_nominal_coverage():
    generator = np.random.default_rng(3)
    held = 0
    for trial in range(200):
        scores = np.round(generator.beta(0.5, 0.5, size=120), 2)
        low, high = intervals.mean_interval(scores, seed=trial)
        held += low <= 0.5 <= high
    assert 180 <= held <= 199  # 190 expected, standard deviation 3.1
    with pytest.raises(ValueError, match="no score"):
        intervals.mean_interval([])


def test_baselines_that_always_give_one_answer():
    assert intervals.majority_baseline(TASKS["sst2"], [1, 1, 0]) == {"accuracy": pytest.approx(2 / 3)}
    assert intervals.majority_baseline(TASKS["mrpc"], [1, 1, 0])["f1"] == pytest.approx(0.8)
    assert intervals.majority_baseline(TASKS["stsb"], [1.5, 4.0, 2.0]) == {"pearson": 0.0, "spearman": 0.0}
    found = intervals.squad_baseline({"a": ["x"], "b": [], "c": []})
    assert found["exact"] == found["f1"] == pytest.approx(200 / 3)


def test_the_interval_over_seeds_is_students():
    mean, half = intervals.seeds_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert math.isnan(intervals.seeds_interval([1.0])[1])
