"""How sure a figure is: 95 % confidence intervals, and what no model at all would reach."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.statistics import wilson_interval
from pipeline.tasks import metrics

Z = 1.959964
"""97.5 % quantile of the normal distribution: two of them on both sides hold 95 %."""
RESAMPLES = 2000
_PERCENTILES = (2.5, 97.5)

Interval = tuple[float, float]


def of_metrics(task_name: str, predictions: ArrayLike, labels: ArrayLike, seed: int = 0) -> dict[str, Interval]:
    """95 % intervals of the figures that `metrics.compute` gives.

    Accuracy: Wilson. F1 and Matthews: percentiles of a bootstrap over the examples. Pearson: Fisher's z. Spearman: the
    same with the variance of Bonett and Wright (Psychometrika 65, 2000).

    Args:
        task_name, predictions, labels: as for `metrics.compute`.
        seed: of the bootstrap.
    """
    figures = metrics.compute(task_name, predictions, labels)
    guesses, truths = np.asarray(predictions), np.asarray(labels)
    found: dict[str, Interval] = {}
    for name, value in figures.items():
        if name == "accuracy":
            found[name] = wilson_interval(value * guesses.size, guesses.size)
        elif name in ("pearson", "spearman"):
            found[name] = correlation_interval(value, guesses.size, ranks=name == "spearman")
        else:
            found[name] = confusion_interval(_FROM_CONFUSION[name], guesses, truths, seed)
    return found


def correlation_interval(value: float, examples: int, *, ranks: bool = False) -> Interval:
    """Fisher's interval of a correlation of `examples` pairs; everything is possible for fewer than four."""
    if examples < 4:
        return -1.0, 1.0
    if abs(value) >= 1.0:
        return value, value
    variance = (1 + value**2 / 2 if ranks else 1.0) / (examples - 3)
    half = Z * math.sqrt(variance)
    return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


def confusion_interval(
    figure: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    predictions: NDArray,
    labels: NDArray,
    seed: int,
) -> Interval:
    """Bootstrap of a figure of two classes.

    To draw examples anew is to draw the four cells of their confusion table from a multinomial distribution, so no
    example is touched.

    Args:
        figure: of cells (R, 4): true negatives, false positives, false negatives, true positives.
    """
    cells = np.bincount(2 * labels.astype(np.int64) + predictions.astype(np.int64), minlength=4)
    drawn = np.random.default_rng(seed).multinomial(cells.sum(), cells / cells.sum(), size=RESAMPLES)  # (R, 4)
    low, high = np.percentile(figure(drawn), _PERCENTILES)
    return float(low), float(high)


def _f1_of(cells: NDArray[np.int64]) -> NDArray[np.float64]:
    _, false_positives, false_negatives, hits = cells.T
    return _ratio(2 * hits, 2 * hits + false_positives + false_negatives)


def _matthews_of(cells: NDArray[np.int64]) -> NDArray[np.float64]:
    rejections, false_positives, false_negatives, hits = cells.astype(np.float64).T
    margins = (hits + false_positives) * (hits + false_negatives)
    margins = margins * (rejections + false_positives) * (rejections + false_negatives)
    return _ratio(hits * rejections - false_positives * false_negatives, np.sqrt(margins))


def _ratio(above: NDArray, below: NDArray) -> NDArray[np.float64]:
    return np.divide(above, below, out=np.zeros(above.shape), where=below > 0)


_FROM_CONFUSION = {"f1": _f1_of, "matthews": _matthews_of}


def mean_interval(scores: ArrayLike, seed: int = 0) -> Interval:
    """Bootstrap of the mean of one score an example, as the F1 of SQuAD's questions. Raises ValueError for none."""
    values, counts = np.unique(np.asarray(scores, dtype=np.float64), return_counts=True)
    if values.size == 0:
        raise ValueError("there is no score to resample")
    drawn = np.random.default_rng(seed).multinomial(counts.sum(), counts / counts.sum(), size=RESAMPLES)  # (R, values)
    low, high = np.percentile(drawn @ values / counts.sum(), _PERCENTILES)
    return float(low), float(high)


def majority_baseline(task_name: str, labels: ArrayLike) -> dict[str, float]:
    """The figures of a model that always gives one answer: the commonest of these very labels (of STS-B: their mean).

    Args:
        task_name: as for `metrics.compute`.
        labels: (N,) what is to be predicted.
    """
    truths = np.asarray(labels)
    if task_name == "stsb":
        answer = truths.mean()
    else:
        values, counts = np.unique(truths, return_counts=True)
        answer = values[counts.argmax()]
    return metrics.compute(task_name, np.full(truths.shape, answer), truths)


def squad_baseline(gold: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The figures of SQuAD's version 2.0 for a model that never sees an answer."""
    return metrics.squad(dict.fromkeys(gold, ""), gold, version="2.0")
