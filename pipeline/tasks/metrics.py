"""The metrics of classes and numbers, and what is estimated from predictions.

Values are shares and correlations, from -1 or 0 to 1; `rmse` has the unit of the labels. A metric is one function of
predictions and labels. The bootstrap calls the same function on resampled examples. `pipeline.tasks.kinds.tagging` has
the metrics of tags, and `pipeline.tasks.kinds.answers` those of SQuAD.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.intervals import Interval

# scipy is imported inside the functions: it takes half a second, and every rank imports this module.


NOT_ABOVE = "not above the majority class"


class Estimate(NamedTuple):
    """A task's first metric on one split, in percent, and its 95 % interval.

    `majority` is that of a model that always gives the most frequent answer. It says nothing if it is 0, as for tags.
    """

    value: float
    interval: Interval
    majority: float

    def __str__(self) -> str:
        return f"{self.value:.1f} ({self.interval[0]:.1f} to {self.interval[1]:.1f})"

    @property
    def exceeds_majority(self) -> bool:
        """Whether all of the interval lies above the majority class."""
        return self.interval[0] > self.majority


def accuracy(predictions: NDArray, labels: NDArray) -> float:
    """The share of the predictions (N,) that equal their labels (N,)."""
    return float((predictions == labels).mean())


def f1(predictions: NDArray, labels: NDArray) -> float:
    """F1 of class 1 for predictions (N,) and labels (N,) of 0 and 1; 0 if neither has the class."""
    hits = int(((predictions == 1) & (labels == 1)).sum())
    return 2 * hits / max(1, int((predictions == 1).sum() + (labels == 1).sum()))


def f1_macro(predictions: NDArray, labels: NDArray) -> float:
    """The mean F1 of the classes that occur in predictions (N,) or labels (N,)."""
    hits, predicted, true = _class_counts(predictions, labels)  # (C,) each
    occurs = predicted + true > 0
    return float((2 * hits[occurs] / (predicted + true)[occurs]).mean())


def matthews(predictions: NDArray, labels: NDArray) -> float:
    """Matthews correlation of predictions (N,) and labels (N,), both classes; 0 if either has one class only."""
    hits, predicted, true = _class_counts(predictions, labels)  # (C,) each
    count = len(labels)
    variances = (count**2 - predicted @ predicted) * (count**2 - true @ true)
    return float((count * hits.sum() - predicted @ true) / math.sqrt(variances)) if variances > 0 else 0.0


def _class_counts(predictions: NDArray, labels: NDArray) -> tuple[NDArray[np.float64], ...]:
    """How often each of C classes is right, predicted and true, (C,) each."""
    classes = 1 + int(max(predictions.max(), labels.max()))
    chosen = (labels[predictions == labels], predictions, labels)
    return tuple(np.bincount(of.astype(np.int64), minlength=classes).astype(np.float64) for of in chosen)


def pearson(predictions: NDArray, labels: NDArray) -> float:
    """Pearson correlation of predictions (N,) and labels (N,); 0 if either is constant, or N is 1."""
    if _is_constant(predictions) or _is_constant(labels):
        return 0.0
    return float(np.corrcoef(predictions, labels)[0, 1])


def spearman(predictions: NDArray, labels: NDArray) -> float:
    """Pearson correlation of the ranks; equal values get their mean rank. 0 if either is constant, or N is 1."""
    from scipy import stats

    return pearson(stats.rankdata(predictions), stats.rankdata(labels))


def rmse(predictions: NDArray, labels: NDArray) -> float:
    """The root of the mean squared error of predictions (N,) and labels (N,); lower is better."""
    return float(np.sqrt(np.square(predictions - labels).mean()))


def _is_constant(values: NDArray) -> bool:
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max(initial=0.0))


METRICS: dict[str, Callable[[NDArray, NDArray], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "f1_macro": f1_macro,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "rmse": rmse,
}
"""By name: functions of predictions (N,) and labels (N,)."""


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """The softmax of logits (N, C), (N, C)."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))  # (N, C)
    return powers / powers.sum(axis=1, keepdims=True)
