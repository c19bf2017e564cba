"""The uncertainty of metrics: 95 % confidence intervals, and baselines that need no model."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.tasks import metrics, squad_metrics
from pipeline.tasks.task import Task
from pipeline.training.reporting.metrics import wilson_interval

Z = 1.959964
"""The 97.5 % quantile of the normal distribution: 95 % of it lie within Z standard deviations of the mean."""
RESAMPLES = 2000
MAX_CONFUSED = 50
"""Classes of a confusion matrix that is drawn; `RESAMPLES` matrices are in memory together."""
_PERCENTILES = (2.5, 97.5)

Interval = tuple[float, float]


def of_metrics(task: Task, predictions: ArrayLike, labels: ArrayLike, seed: int = 0) -> dict[str, Interval]:
    """95 % intervals of the metrics of a task.

    Accuracy: Wilson. Pearson: Fisher's z. Spearman: Fisher's z with the variance of Bonett and Wright (Psychometrika
    65, 2000). F1, Matthews and any other metric: percentiles of a bootstrap over the examples.

    Args:
        predictions, labels: (N,) as for `metrics.compute`.
        seed: of the bootstrap.
    """
    values = metrics.compute(task.metrics, predictions, labels)
    predicted, true = np.asarray(predictions), np.asarray(labels)
    return {name: of_metric(task, name, value, predicted, true, seed) for name, value in values.items()}


def of_metric(task: Task, name: str, value: float, predicted: NDArray, true: NDArray, seed: int = 0) -> Interval:
    """95 % interval of one metric, whose value for predictions (N,) and labels (N,) is known. See `of_metrics`."""
    if name == "accuracy":
        return wilson_interval(value * predicted.size, predicted.size)
    if name in ("pearson", "spearman"):
        return correlation_interval(value, predicted.size, ranks=name == "spearman")
    if name in _FROM_CONFUSION and len(task.labels) <= MAX_CONFUSED:
        return confusion_interval(_FROM_CONFUSION[name], predicted, true, len(task.labels), seed)
    return bootstrap_interval(metrics.find_function(name), predicted, true, seed)


def seeds_interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean over the seeds, and half of its 95 % interval (Student's t); NaN for one value."""
    from scipy import stats  # takes a second

    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return mean, quantile * statistics.stdev(values) / math.sqrt(len(values))


def correlation_interval(value: float, examples: int, *, ranks: bool = False) -> Interval:
    """Fisher's interval of a correlation of `examples` pairs; -1 to 1 for fewer than four pairs."""
    if examples < 4:
        return -1.0, 1.0
    if abs(value) >= 1.0:
        return value, value
    variance = (1 + value**2 / 2 if ranks else 1.0) / (examples - 3)
    half = Z * math.sqrt(variance)
    return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


def bootstrap_interval(
    metric: Callable[[NDArray, NDArray], float], predictions: NDArray, labels: NDArray, seed: int
) -> Interval:
    """Percentiles of `metric` over samples of the examples, drawn with replacement.

    Args:
        predictions, labels: (N,).
    """
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(0, labels.size, labels.size) for _ in range(RESAMPLES))
    low, high = np.percentile([metric(predictions[rows], labels[rows]) for rows in drawn], _PERCENTILES)
    return float(low), float(high)


def confusion_interval(
    metric: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    predictions: NDArray,
    labels: NDArray,
    classes: int,
    seed: int,
) -> Interval:
    """The bootstrap of a metric of classes, computed from the confusion matrix.

    Drawing the examples again is the same as drawing the cells of their confusion matrix from a multinomial
    distribution, which is much faster.

    Args:
        metric: of R confusion matrices (R, C, C), true classes by predicted classes; returns (R,).
        predictions, labels: (N,) classes.
        classes: C.
    """
    pairs = classes * labels.astype(np.int64) + predictions.astype(np.int64)  # (N,)
    cells = np.bincount(pairs, minlength=classes**2)
    drawn = np.random.default_rng(seed).multinomial(cells.sum(), cells / cells.sum(), size=RESAMPLES)  # (R, C * C)
    matrices = drawn.reshape(RESAMPLES, classes, classes).astype(np.float64)
    low, high = np.percentile(metric(matrices), _PERCENTILES)
    return float(low), float(high)


def _f1_of(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 of class 1."""
    true, predicted = matrices.sum(axis=2)[:, 1], matrices.sum(axis=1)[:, 1]  # (R,)
    return _ratio(2 * matrices[:, 1, 1], true + predicted)


def _f1_macro_of(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean F1 of the classes that occur in the labels or in the predictions."""
    occurrences = matrices.sum(axis=2) + matrices.sum(axis=1)  # (R, C)
    of_classes = _ratio(2 * np.diagonal(matrices, axis1=1, axis2=2), occurrences)  # (R, C)
    return of_classes.sum(axis=1) / (occurrences > 0).sum(axis=1)


def _matthews_of(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    true, predicted = matrices.sum(axis=2), matrices.sum(axis=1)  # (R, C)
    examples, right = true.sum(axis=1), np.trace(matrices, axis1=1, axis2=2)  # (R,)
    covariance = examples * right - (true * predicted).sum(axis=1)
    variances = (examples**2 - (true**2).sum(axis=1)) * (examples**2 - (predicted**2).sum(axis=1))
    return _ratio(covariance, np.sqrt(variances))


def _ratio(above: NDArray, below: NDArray) -> NDArray[np.float64]:
    return np.divide(above, below, out=np.zeros(above.shape), where=below > 0)


_FROM_CONFUSION = {"f1": _f1_of, "f1_macro": _f1_macro_of, "matthews": _matthews_of}


def ratio_of_sums(above: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    """The sum of `above` (N,) over the sum of `below` (N,); 0 if the latter is 0."""
    whole = float(below.sum())
    return float(above.sum()) / whole if whole else 0.0


def ratio_interval(above: NDArray[np.float64], below: NDArray[np.float64], seed: int = 0) -> Interval:
    """Bootstrap over N texts of the sum of `above` (N,) over the sum of `below` (N,)."""
    return bootstrap_interval(ratio_of_sums, above, below, seed)


def mean_interval(scores: ArrayLike, seed: int = 0) -> Interval:
    """Bootstrap of the mean of one score for each example, such as the F1 of SQuAD's questions.

    Raises ValueError if there is no score.
    """
    values, counts = np.unique(np.asarray(scores, dtype=np.float64), return_counts=True)
    if values.size == 0:
        raise ValueError("there is no score to resample")
    drawn = np.random.default_rng(seed).multinomial(counts.sum(), counts / counts.sum(), size=RESAMPLES)  # (R, values)
    low, high = np.percentile(drawn @ values / counts.sum(), _PERCENTILES)
    return float(low), float(high)


def majority_baseline(task: Task, labels: ArrayLike) -> dict[str, float]:
    """The metrics of a model that always predicts the most frequent of these labels (for a regression: their mean).

    Args:
        labels: (N,) the labels to predict.
    """
    true = np.asarray(labels)
    if task.kind == "regression":
        prediction = true.mean()
    else:
        values, counts = np.unique(true, return_counts=True)
        prediction = values[counts.argmax()]
    return metrics.compute(task.metrics, np.full(true.shape, prediction), true)


def squad_baseline(gold: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The metrics of SQuAD 2.0 for a model that never gives an answer."""
    return squad_metrics.squad(dict.fromkeys(gold, ""), gold, version="2.0")
