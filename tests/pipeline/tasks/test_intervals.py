"""Confidence intervals against scipy's, against resampled examples, and by how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from pipeline.tasks import metrics
from pipeline.tasks.kinds.answers import Answers, Span
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


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_has_the_published_values(successes, trials, low, high):
    assert metrics.wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_wilson_interval_stays_between_0_and_1():
    for trials in range(1, 200):
        assert f"{metrics.wilson_interval(0, trials)[0]:.1f}" == "0.0"
        assert metrics.wilson_interval(trials, trials)[1] <= 1.0


def test_wilsons_interval_of_no_trials_says_nothing():
    assert metrics.wilson_interval(0, 0) == (0.0, 1.0)


def test_a_correlation_has_fishers_interval():
    generator = np.random.default_rng(1)
    labels = generator.normal(size=80)
    predictions = labels + generator.normal(size=80)
    expected = stats.pearsonr(predictions, labels).confidence_interval(0.95)
    assert interval("stsb", "pearson", predictions, labels) == pytest.approx(tuple(expected), abs=1e-6)
    ends = metrics.correlation_interval(0.6, 28, ranks=True)
    assert np.arctanh(ends) == pytest.approx(np.arctanh(0.6) + 1.959964 * np.array([-1, 1]) * np.sqrt(1.18 / 25))
    rank_correlation = stats.spearmanr(predictions, labels).statistic
    wanted = metrics.correlation_interval(rank_correlation, 80, ranks=True)
    assert interval("stsb", "spearman", predictions, labels) == pytest.approx(wanted)
    assert metrics.correlation_interval(1.0, 9) == (1.0, 1.0)
    assert metrics.correlation_interval(0.3, 3) == (-1.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "metric", "reference"), [
    ("mrpc", "f1", f1_score), ("cola", "matthews", matthews_corrcoef),
])  # fmt: skip
def test_f1_and_matthews_have_the_interval_of_resampled_examples(task, metric, reference):
    predictions, labels = two_classes(300)
    generator = np.random.default_rng(2)
    samples = [generator.integers(0, 300, 300) for _ in range(1500)]
    expected = np.percentile([reference(labels[rows], predictions[rows]) for rows in samples], [2.5, 97.5])
    # The standard deviation of an end of such a bootstrap is 2 % of the length of the interval.
    found = interval(task, metric, predictions, labels)
    assert found == pytest.approx(tuple(expected), abs=0.06 * (expected[1] - expected[0]))


def test_missing_classes_have_an_interval_of_zero():
    assert interval("mrpc", "f1", [0, 0], [0, 0]) == (0.0, 0.0)
    assert interval("cola", "matthews", [1, 1], [1, 0]) == (0.0, 0.0)


def test_the_bootstrap_of_a_mean_has_its_nominal_coverage():
    generator = np.random.default_rng(3)
    held = 0
    for trial in range(200):
        scores = np.round(generator.beta(0.5, 0.5, size=120), 2)
        low, high = metrics.bootstrap_interval(lambda rows, scores=scores: scores[rows].mean(), 120, seed=trial)
        held += low <= 0.5 <= high
    assert 180 <= held <= 199  # 190 expected, standard deviation 3.1


def test_baselines_that_always_give_one_answer():
    assert majority("sst2", [1, 1, 0]) == {"accuracy": pytest.approx(2 / 3)}
    assert majority("mrpc", [1, 1, 0])["f1"] == pytest.approx(0.8)
    assert majority("stsb", [1.5, 4.0, 2.0]) == {"pearson": 0.0, "spearman": 0.0}
    squad = TASKS["squad2"]
    given = {name: Answers((Span("x", 0, 1, 0.0),), -1.0, gold) for name, gold in (("a", ("x",)), ("b", ()), ("c", ()))}
    found = squad.kind.statistic(squad, "f1", squad.kind.majority(squad, given))
    assert found(np.arange(3)) == pytest.approx(2 / 3)


def test_the_interval_over_seeds_is_students():
    mean, half = metrics.seeds_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert math.isnan(metrics.seeds_interval([1.0])[1])
