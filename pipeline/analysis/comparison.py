"""Compares runs with the majority class and with the same model from random weights, with 95 % intervals.

All values are computed from the predictions of a run (`RUN/logits`), not read from its `results.json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.errors import UserError
from pipeline.analysis.finished_runs import TaskRun, member_directories, read_predictions
from pipeline.tasks.kind import Statistic
from pipeline.tasks.metrics import Interval, bootstrap_interval
from pipeline.tasks.task import Task


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


def estimate_of(task: Task, predictions: Any, seed: int = 0) -> Estimate | None:
    """The task's first metric on one split (SQuAD: F1); None if the labels are not known."""
    kind, metric = task.kind, task.metrics[0]
    if not kind.is_labelled(predictions):
        return None
    every = np.arange(kind.count(predictions))
    value, majority = (
        kind.statistic(task, metric, one)(every) for one in (predictions, kind.majority(task, predictions))
    )
    low, high = kind.interval(task, metric, predictions, seed)
    return Estimate(100 * value, (100 * low, 100 * high), 100 * majority)


def gain_of(task: Task, first: Any, second: Any, seed: int = 0) -> Interval:
    """95 % bootstrap interval of the metric of `first` minus that of `second`, in percentage points.

    Each resample takes the same examples for both, so that an example that is hard for both does not widen the
    interval.

    Raises:
        ValueError: the two do not hold the same examples, or their labels are not known.
    """
    low, high = bootstrap_interval(*difference_of(task, first, second), seed)
    return 100 * low, 100 * high


def difference_of(task: Task, first: Any, second: Any) -> tuple[Statistic, int]:
    """A function from the numbers (M,) of examples to the difference of the two metrics, and the number of examples.

    Raises:
        ValueError: see `gain_of`.
    """
    kind, metric = task.kind, task.metrics[0]
    ours, theirs = (kind.statistic(task, metric, one) for one in (first, kind.align(second, first)))
    return lambda rows: ours(rows) - theirs(rows), kind.count(first)


def compare(runs: Sequence[TaskRun], random: Sequence[TaskRun]) -> list[Comparison]:
    """Every labelled split of `runs` beside the same split of the same task in `random`; the first seed of each run.

    Raises UserError if a run has no logits, its task is unknown, or the two runs of a task hold different examples.
    """
    untrained: dict[str, dict[str, Any]] = {}
    for run in random:
        untrained.setdefault(run.task.name, read_predictions(member_directories(run.directory)[0], run.task))
    found = []
    for run in runs:
        task = run.task
        for split, predictions in read_predictions(member_directories(run.directory)[0], task).items():
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
                    examples=task.kind.count(predictions),
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
