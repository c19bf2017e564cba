"""Compares runs with the majority class and with the same model from random weights, with 95 % intervals.

All values are computed from the predictions of a run (`RUN/logits`), not read from its `results.json`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.errors import UserError
from common.files import atomic, outputs
from common.text import markdown_table
from pipeline.analysis.finished_runs import TaskRun, find_runs, member_directories, read_predictions
from pipeline.tasks.kind import Statistic
from pipeline.tasks.metrics import Interval, bootstrap_interval
from pipeline.tasks.task import Task

COMMAND = "pipeline.evaluate compare"


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


def verdict_of(weights: str, gain: Interval | None) -> str:
    """The conclusion that the interval of a gain over random weights allows, for a run from such weights."""
    if weights == "random":
        return "random weights themselves"
    if gain is None:
        return "random weights not run"
    if gain[0] > 0:
        return "pre-training helps"
    return "pre-training hurts" if gain[1] < 0 else "no difference shown"


def compare(runs: Sequence[TaskRun], random: Sequence[TaskRun]) -> list[dict[str, Any]]:
    """Every labelled split of `runs` beside the same split of the same task in `random`; the first seed of each run.

    Returns:
        What comparison.json holds, in percent: the estimate of the run (`value`, `interval`, `majority`), that of the
        random weights (`random`, `random_interval`; None if they were not run), and the 95 % interval of the difference
        in percentage points (`gain_interval`). `weights` says what the run started from.
    Raises:
        UserError: a run has no logits, its task is unknown, or the two runs of a task hold different examples.
    """
    untrained: dict[str, dict[str, Any]] = {}
    for run in random:
        untrained.setdefault(run.task.name, read_predictions(member_directories(run.directory)[0], run.task))
    rows = []
    for run in runs:
        task, weights = run.task, "random" if run.results.get("random_weights") else "pre-trained"
        for split, predictions in read_predictions(member_directories(run.directory)[0], task).items():
            estimate, baseline = estimate_of(task, predictions), untrained.get(task.name, {}).get(split)
            if estimate is None:
                continue
            try:
                gain = None if baseline is None else gain_of(task, predictions, baseline)
            except ValueError as error:
                raise UserError(f"{run.directory} and the random weights differ on {split}: {error}") from None
            other = None if baseline is None else estimate_of(task, baseline)
            rows.append(
                {
                    "task": task.name,
                    "split": split,
                    "metric": task.metrics[0],
                    "examples": len(predictions),
                    "run": str(run.directory),
                    "weights": weights,
                    **estimate._asdict(),
                    "random": None if other is None else other.value,
                    "random_interval": None if other is None else other.interval,
                    "gain_interval": gain,
                    "verdict": verdict_of(weights, gain),
                }
            )
    return rows


def write_comparison(runs: Sequence[Path], random: Sequence[Path], out: Path | None, overwrite: bool = False) -> str:
    """Compares the runs below directories, writes comparison.md and comparison.json into `out`, and returns the table.

    Raises UserError if no run has predictions of labelled examples, and as `compare`.
    """
    if out is not None:
        outputs.check(out, COMMAND, overwrite=overwrite)
    rows = compare(find_runs(runs), find_runs(random))
    if not rows:
        raise UserError("none of the runs has predictions of labelled examples; fine-tune with a dev split")
    if out is not None:
        with outputs.making(out, COMMAND, overwrite=overwrite) as folder:
            atomic.write_text(folder / "comparison.md", markdown(rows))
            atomic.write_text(folder / "comparison.json", json.dumps(rows, indent=1) + "\n")
    return markdown(rows)


def markdown(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The rows of `compare` as a Markdown table."""
    titles = ["run", "weights", "task", "split", "examples", "metric", "majority class", "random weights", "this run"]
    rows = []
    for row in comparisons:
        majority = f"{row['majority']:.1f}" if row["majority"] else ""
        random = "not run" if row["random"] is None else _with_interval(row["random"], row["random_interval"])
        gain = "" if row["gain_interval"] is None else "{:+.1f} to {:+.1f}".format(*row["gain_interval"])
        measured = [majority, random, _with_interval(row["value"], row["interval"]), gain, row["verdict"]]
        rows.append([*(row[name] for name in ("run", "weights", "task", "split", "examples", "metric")), *measured])
    return markdown_table([*titles, "gain, 95 %", "verdict"], rows, "llllrlrrrrl") + "\n"


def _with_interval(value: float, interval: Interval) -> str:
    return f"{value:.1f} ({interval[0]:.1f} to {interval[1]:.1f})"
