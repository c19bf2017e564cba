"""The metrics of classes and numbers: pure functions of predictions and labels.

Their values are shares and correlations, from -1 or 0 to 1; `rmse` has the unit of the labels. `tagging_metrics` has
the metrics of tags, and `squad_metrics` those of SQuAD.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.tasks.task import Metric

# scipy and scikit-learn are imported inside the functions: they take a second, and every rank imports this module.


def accuracy(predictions: NDArray, labels: NDArray) -> float:
    """The share of the predictions (N,) that equal their labels (N,)."""
    return float((predictions == labels).mean())


def f1(predictions: NDArray, labels: NDArray) -> float:
    """F1 of class 1 for predictions (N,) and labels (N,) of 0 and 1; 0 if neither has the class."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, pos_label=1, average="binary", zero_division=0.0))


def f1_macro(predictions: NDArray, labels: NDArray) -> float:
    """The mean F1 of the classes that occur in predictions (N,) or labels (N,)."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="macro", zero_division=0.0))


def matthews(predictions: NDArray, labels: NDArray) -> float:
    """Matthews correlation of predictions (N,) and labels (N,), both classes; 0 if either has one class only."""
    from sklearn.metrics import matthews_corrcoef

    if _constant(predictions) or _constant(labels):
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def pearson(predictions: NDArray, labels: NDArray) -> float:
    """Pearson correlation of predictions (N,) and labels (N,); 0 if either is constant, or N is 1."""
    from scipy import stats

    if _constant(predictions) or _constant(labels):
        return 0.0
    return float(stats.pearsonr(predictions, labels).statistic)


def spearman(predictions: NDArray, labels: NDArray) -> float:
    """Pearson correlation of the ranks; equal values get their mean rank. 0 if either is constant, or N is 1."""
    from scipy import stats

    return pearson(stats.rankdata(predictions), stats.rankdata(labels))


def rmse(predictions: NDArray, labels: NDArray) -> float:
    """The root of the mean squared error of predictions (N,) and labels (N,); lower is better."""
    return float(np.sqrt(np.square(predictions - labels).mean()))


def _constant(values: NDArray) -> bool:
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max(initial=0.0))


FUNCTIONS: dict[Metric, Callable[[NDArray, NDArray], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "f1_macro": f1_macro,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "rmse": rmse,
}
"""The metrics by name; each takes predictions (N,) and labels (N,)."""


def find_function(name: str) -> Callable[[NDArray, NDArray], float]:
    """The metric called `name`. Raises ValueError for an unknown name."""
    for known, function in FUNCTIONS.items():
        if known == name:
            return function
    raise ValueError(f"there is no metric {name!r}; choose from {', '.join(FUNCTIONS)}")


def compute(names: Sequence[str], predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Several metrics of the same predictions.

    Args:
        names: of the metrics, from `FUNCTIONS`.
        predictions: (N,) classes, or the numbers of a regression.
        labels: (N,) of the same kind.

    Raises:
        ValueError: an unknown metric, no examples, more or fewer predictions than labels, or numbers that are NaN or
            infinite.
    """
    functions = {name: find_function(name) for name in names}
    predicted, true = np.asarray(predictions), np.asarray(labels)
    if predicted.shape != true.shape or predicted.ndim != 1 or predicted.size == 0:
        raise ValueError(f"predictions {predicted.shape} and labels {true.shape} are not lists of one length above 0")
    if "f" in (predicted.dtype.kind, true.dtype.kind):
        predicted, true = predicted.astype(np.float64), true.astype(np.float64)
        if not (np.isfinite(predicted).all() and np.isfinite(true).all()):
            raise ValueError("predictions or labels hold NaN or infinity; the training has diverged")
    return {name: function(predicted, true) for name, function in functions.items()}


def accuracy_by_level(predictions: ArrayLike, labels: ArrayLike, levels: Sequence[str]) -> dict[str, float]:
    """Accuracies of RACE's questions of level "middle" and of level "high"; a level without questions is left out.

    Args:
        predictions, labels: (N,) numbers of options.
        levels: (N,) "middle", "high", or "" where the level is not known.
    """
    right = np.asarray(predictions) == np.asarray(labels)  # (N,)
    of_level = {level: np.array([given == level for given in levels], dtype=bool) for level in ("middle", "high")}
    return {level: float(right[chosen].mean()) for level, chosen in of_level.items() if chosen.any()}
