"""Compares runs with the majority class and with the same model from random weights, with 95 % intervals.

All values are computed from the predictions of a run (`RUN/logits`), not read from its `results.json`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.errors import UserError
from common.text import markdown_table
from pipeline.analysis.finished_runs import TaskRun, find_runs, member_directories, read_predictions
from pipeline.tasks.features import Statistic
from pipeline.tasks.metrics import Interval, bootstrap_interval
from pipeline.tasks.task import Task

TITLES = (
    *("run", "weights", "task", "split", "examples", "metric", "majority class", "random weights", "this run"),
    *("gain, 95 %", "verdict"),
)


class Estimate(NamedTuple):
    """A task's first metric on one split, in percent.

    Attributes:
        value: the measured value.
        interval: its 95 % interval.
        majority: the metric of a model that always gives the most frequent answer. It says nothing if it is 0, as for
            tags.
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


def estimate_of(task: Task, predictions: Any, seed: int = 0) -> Estimate | None:
    """The task's first metric on one split (SQuAD: F1); None if the labels are not known."""
    kind, metric = task.kind, task.metrics[0]
    if not predictions.labelled:
        return None
    every = np.arange(len(predictions))
    value, majority = (
        kind.statistic(task, metric, tested)(every) for tested in (predictions, kind.majority(task, predictions))
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

    Raises ValueError as `gain_of`.
    """
    kind, metric = task.kind, task.metrics[0]
    ours, theirs = (kind.statistic(task, metric, one) for one in (first, second.aligned(first)))
    return lambda rows: ours(rows) - theirs(rows), len(first)


NOT_ABOVE = "not above the majority class"


def verdict_of(weights: str, gain: Interval | None, exceeds_majority: bool = True) -> str:
    """The conclusion that the interval of a gain over random weights allows, for a run from such weights.

    A run that does not exceed the majority class has learned nothing that a gain could show.
    """
    if not exceeds_majority:
        return NOT_ABOVE
    if weights == "random":
        return "random weights themselves"
    if gain is None:
        return "random weights not run"
    if gain[0] > 0:
        return "pre-training helps"
    return "pre-training hurts" if gain[1] < 0 else "no difference shown"


def compare(runs: Sequence[Path], random: Sequence[Path]) -> str:
    """A table of every labelled split of the runs below directories, beside that of the same task from random weights.

    Of several seeds the first one is compared. The interval of the gain is in percentage points.

    Raises:
        UserError: a run has no logits, the two runs of a task hold different examples, or no example has a label.
    """
    untrained: dict[str, Mapping[str, Any]] = {}
    for run in find_runs(random):
        untrained.setdefault(run.task.name, _first_predictions(run))
    rows = [row for run in find_runs(runs) for row in _rows(run, untrained.get(run.task.name, {}))]
    if not rows:
        raise UserError("none of the runs has predictions of labelled examples; fine-tune with a dev split")
    return markdown_table(TITLES, rows, "llllrlrrrrl")


def _first_predictions(run: TaskRun) -> Mapping[str, Any]:
    return read_predictions(member_directories(run.directory)[0], run.task)


def _rows(run: TaskRun, untrained: Mapping[str, Any]) -> Iterator[list[object]]:
    """The row of each labelled split of a run; `untrained` has the predictions of the model from random weights."""
    task, weights = run.task, "random" if run.results.random_weights else "pre-trained"
    for split, predictions in _first_predictions(run).items():
        estimate = estimate_of(task, predictions)
        if estimate is None:
            continue
        random, gain = None, None
        if split in untrained:
            try:
                random, gain = estimate_of(task, untrained[split]), gain_of(task, predictions, untrained[split])
            except ValueError as error:
                raise UserError(f"{run.directory} and the random weights differ on {split}: {error}") from None
        majority = f"{estimate.majority:.1f}" if estimate.majority else ""
        points = "" if gain is None else f"{gain[0]:+.1f} to {gain[1]:+.1f}"
        # Of numbers there is no class.
        verdict = verdict_of(weights, gain, task.kind.predicts_numbers or estimate.exceeds_majority)
        measured = [majority, random or "not run", estimate, points, verdict]
        yield [run.directory, weights, task.name, split, len(predictions), task.metrics[0], *measured]
