"""Confidence intervals: against scipy's, against resampling the examples, and by how often they are right."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from pipeline.statistics import wilson_interval
from pipeline.tasks import intervals


def two_classes(size, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.random(size) < 0.3
    return (labels ^ (generator.random(size) < 0.2)).astype(int), labels.astype(int)


def test_an_accuracy_has_wilsons_interval():
    guesses, labels = two_classes(200)
    right = int((guesses == labels).sum())
    assert intervals.of_metrics("sst2", guesses, labels) == {"accuracy": pytest.approx(wilson_interval(right, 200))}


def test_a_correlation_has_fishers_interval():
    generator = np.random.default_rng(1)
    labels = generator.normal(size=80)
    guesses = labels + generator.normal(size=80)
    expected = stats.pearsonr(guesses, labels).confidence_interval(0.95)
    found = intervals.of_metrics("stsb", guesses, labels)
    assert found["pearson"] == pytest.approx(tuple(expected), abs=1e-6)
    ends = intervals.correlation_interval(0.6, 28, ranks=True)
    assert np.arctanh(ends) == pytest.approx(np.arctanh(0.6) + 1.959964 * np.array([-1, 1]) * np.sqrt(1.18 / 25))
    rank_correlation = stats.spearmanr(guesses, labels).statistic
    assert found["spearman"] == pytest.approx(intervals.correlation_interval(rank_correlation, 80, ranks=True))
    assert intervals.correlation_interval(1.0, 9) == (1.0, 1.0)
    assert intervals.correlation_interval(0.3, 3) == (-1.0, 1.0)


def test_f1_and_matthews_are_resampled_as_their_examples_would_be():
    guesses, labels = two_classes(300)
    generator = np.random.default_rng(2)
    drawn = [generator.integers(0, 300, 300) for _ in range(1500)]
    found = intervals.of_metrics("mrpc", guesses, labels) | intervals.of_metrics("cola", guesses, labels)
    for name, figure in (("f1", f1_score), ("matthews", matthews_corrcoef)):
        expected = np.percentile([figure(labels[rows], guesses[rows]) for rows in drawn], [2.5, 97.5])
        # The ends of two bootstraps of this many draws differ by 2 % of their distance, one standard deviation.
        assert found[name] == pytest.approx(tuple(expected), abs=0.06 * (expected[1] - expected[0]))


def test_classes_that_were_never_seen_have_an_interval_of_nothing():
    assert intervals.of_metrics("mrpc", [0, 0], [0, 0])["f1"] == (0.0, 0.0)
    assert intervals.of_metrics("cola", [1, 1], [1, 0])["matthews"] == (0.0, 0.0)


def test_the_interval_of_a_mean_holds_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(3)
    held = 0
    for trial in range(200):
        scores = np.round(generator.beta(0.5, 0.5, size=120), 2)
        low, high = intervals.mean_interval(scores, seed=trial)
        held += low <= 0.5 <= high
    assert 180 <= held <= 199  # 190 expected, standard deviation 3.1
    with pytest.raises(ValueError, match="no score"):
        intervals.mean_interval([])


def test_baselines_that_know_one_answer():
    assert intervals.majority_baseline("sst2", [1, 1, 0]) == {"accuracy": pytest.approx(2 / 3)}
    assert intervals.majority_baseline("mrpc", [1, 1, 0])["f1"] == pytest.approx(0.8)
    assert intervals.majority_baseline("stsb", [1.5, 4.0, 2.0]) == {"pearson": 0.0, "spearman": 0.0}
    found = intervals.squad_baseline({"a": ["x"], "b": [], "c": []})
    assert found["exact"] == found["f1"] == pytest.approx(200 / 3)
