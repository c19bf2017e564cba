"""Compares runs with the majority class and with the same model from random weights, with 95 % intervals.

All values are computed from the predictions of a run (`RUN/logits`), not read from its `results.json`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from pipeline.analysis import intervals
from pipeline.analysis.finished_runs import TaskRun, member_directories, read_predictions
from pipeline.analysis.intervals import Interval
from pipeline.tasks import metrics, scoring, tagging_metrics
from pipeline.tasks.predictions import Logits, Predictions, TagLogits, count
from pipeline.tasks.task import Task

RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A task's first metric on one split, in percent.

    Attributes:
        value: the measured value.
        interval: its 95 % interval.
        majority: the metric of a model that always gives the most frequent answer.
    """

    value: float
    interval: Interval
    majority: float


@dataclass(frozen=True)
class Comparison:
    """A run beside the same model from random weights.

    Attributes:
        task, split, metric: what is compared.
        examples: of the split.
        run: directory of the run.
        trained: the estimate of the run.
        random: the estimate of the random weights; None if they were not run.
        gain: 95 % interval of the run's metric minus that of the random weights, in percentage points.
    """

    task: str
    split: str
    metric: str
    examples: int
    run: str
    trained: Estimate
    random: Estimate | None
    gain: Interval | None

    @property
    def verdict(self) -> str:
        """The conclusion that the interval of the gain allows."""
        if self.gain is None:
            return "random weights not run"
        if self.gain[0] > 0:
            return "pre-training helps"
        return "pre-training hurts" if self.gain[1] < 0 else "no difference shown"


def estimate_of(task: Task, predictions: Predictions, seed: int = 0) -> Estimate | None:
    """The task's first metric on one split (SQuAD: F1); None if the labels are not known."""
    if isinstance(predictions, Logits):
        if predictions.labels is None:
            return None
        name, predicted = task.metrics[0], predictions.predictions()  # (N,)
        value = metrics.compute(task.metrics, predicted, predictions.labels)[name]
        low, high = intervals.of_metric(task, name, value, predicted, predictions.labels, seed)
        majority = intervals.majority_baseline(task, predictions.labels)[name]
        return Estimate(100 * value, (100 * low, 100 * high), 100 * majority)
    if isinstance(predictions, TagLogits):
        return None if predictions.labels is None else _estimate_of_tags(task, predictions, seed)
    if not predictions or not scoring.has_gold(predictions):
        return None
    scores = scoring.question_f1(predictions)  # (N,)
    low, high = intervals.mean_interval(scores, seed)
    majority = intervals.squad_baseline(scoring.gold_of(predictions))["f1"]
    return Estimate(100 * float(scores.mean()), (100 * low, 100 * high), majority)


def _estimate_of_tags(task: Task, predictions: TagLogits, seed: int) -> Estimate:
    """The estimate of known tags. The bootstrap draws whole texts: the tokens of one depend on each other."""
    assert predictions.labels is not None
    above, below = tagging_metrics.parts_of_score(task, predictions, predictions.predictions())  # (N,) each
    low, high = intervals.ratio_interval(above, below, seed)
    most_frequent = np.full(predictions.labels.shape, np.bincount(predictions.labels).argmax())  # (T,)
    always = tagging_metrics.parts_of_score(task, predictions, most_frequent)
    value, majority = (intervals.ratio_of_sums(*parts) for parts in ((above, below), always))
    return Estimate(100 * value, (100 * low, 100 * high), 100 * majority)


def gain_of(task: Task, first: Predictions, second: Predictions, seed: int = 0) -> Interval:
    """95 % bootstrap interval of the metric of `first` minus that of `second`, in percentage points.

    Each resample draws the same examples for both, so that an example that is hard for both does not widen the
    interval.

    Raises:
        ValueError: the two do not hold the same examples, or their labels are not known.
    """
    difference, examples = difference_of(task, first, second)
    rng = np.random.default_rng(seed)
    gains = [difference(rng.integers(0, examples, examples)) for _ in range(RESAMPLES)]
    low, high = np.percentile(gains, (2.5, 97.5))
    return 100 * float(low), 100 * float(high)


def difference_of(
    task: Task, first: Predictions, second: Predictions
) -> tuple[Callable[[NDArray[np.int64]], float], int]:
    """A function from the numbers (N,) of examples to the difference of the two metrics, and N.

    Raises:
        ValueError: see `gain_of`.
    """
    if isinstance(first, Logits) and isinstance(second, Logits):
        labels = first.labels
        if labels is None:
            raise ValueError("the labels are not known")
        ours, theirs = first.predictions(), second.aligned(first.ids).predictions()
        name = task.metrics[0]
        if name == "accuracy":
            gains = (ours == labels).astype(np.float64) - (theirs == labels)  # (N,)
            return lambda rows: float(gains[rows].mean()), len(labels)
        if name == "matthews" and len(task.labels) == 2:
            name = "pearson"  # the same value for two classes, and ten times as fast as scikit-learn's Matthews
        metric = metrics.find_function(name)
        return lambda rows: metric(ours[rows], labels[rows]) - metric(theirs[rows], labels[rows]), len(labels)
    if isinstance(first, TagLogits) and isinstance(second, TagLogits):
        return _difference_of_tags(task, first, second.aligned(first.ids))
    if not isinstance(first, dict) or not isinstance(second, dict) or first.keys() != second.keys():
        raise ValueError("the questions are not the same")
    if not scoring.has_gold(first) or not scoring.has_gold(second):
        raise ValueError("the answers are not known")
    gains = scoring.question_f1(first) - scoring.question_f1({question: second[question] for question in first})
    return lambda rows: float(gains[rows].mean()), len(gains)


def _difference_of_tags(
    task: Task, first: TagLogits, second: TagLogits
) -> tuple[Callable[[NDArray[np.int64]], float], int]:
    if first.labels is None:
        raise ValueError("the labels are not known")
    first.check_same_lengths(second)
    ours = tagging_metrics.parts_of_score(task, first, first.predictions())  # (N,) each
    theirs = tagging_metrics.parts_of_score(task, first, second.predictions())
    of_rows = intervals.ratio_of_sums
    return (
        lambda rows: of_rows(ours[0][rows], ours[1][rows]) - of_rows(theirs[0][rows], theirs[1][rows]),
        len(first.ids),
    )


def compare(runs: Sequence[TaskRun], random: Sequence[TaskRun]) -> list[Comparison]:
    """Every labelled split of `runs` beside the same split of the same task in `random`; the first seed of each run.

    Raises UserError if a run has no logits, its task is unknown, or the two runs of a task hold different examples.
    """
    untrained: dict[str, dict[str, Predictions]] = {}
    for run in random:
        untrained.setdefault(run.task.name, dict(read_predictions(member_directories(run.directory)[0])))
    found = []
    for run in runs:
        task = run.task
        for split, predictions in read_predictions(member_directories(run.directory)[0]):
            estimate, baseline = estimate_of(task, predictions), untrained.get(task.name, {}).get(split)
            if estimate is None:
                continue
            try:
                gain = None if baseline is None else gain_of(task, predictions, baseline)
            except ValueError as error:
                raise UserError(f"{run.directory} and the random weights differ on {split}: {error}") from None
            found.append(
                Comparison(
                    task=task.name,
                    split=split,
                    metric=task.metrics[0],
                    examples=count(predictions),
                    run=str(run.directory),
                    trained=estimate,
                    random=None if baseline is None else estimate_of(task, baseline),
                    gain=gain,
                )
            )
    return found


def markdown(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as a Markdown table, in percent."""
    lines = [
        "| task | split | examples | metric | majority class | random weights | pre-trained | gain, 95 % | verdict |",
        "|---|---|---:|---|---:|---:|---:|---:|---|",
    ]
    for one in comparisons:
        random = "not run" if one.random is None else _with_interval(one.random)
        gain = "" if one.gain is None else f"{one.gain[0]:+.1f} to {one.gain[1]:+.1f}"
        lines.append(
            f"| {one.task} | {one.split} | {one.examples:,} | {one.metric} | {one.trained.majority:.1f} | {random} "
            f"| {_with_interval(one.trained)} | {gain} | {one.verdict} |"
        )
    return "\n".join(lines) + "\n"


def _with_interval(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} ({estimate.interval[0]:.1f} to {estimate.interval[1]:.1f})"


def as_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The comparisons as plain values."""
    return [
        {
            "task": one.task,
            "split": one.split,
            "metric": one.metric,
            "examples": one.examples,
            "run": one.run,
            "majority": one.trained.majority,
            "value": one.trained.value,
            "interval": list(one.trained.interval),
            "random": None if one.random is None else one.random.value,
            "random_interval": None if one.random is None else list(one.random.interval),
            "gain_interval": None if one.gain is None else list(one.gain),
            "verdict": one.verdict,
        }
        for one in comparisons
    ]
