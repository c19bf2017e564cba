"""Finds fine-tuning runs that have ended, and compares them with the majority class and with random weights.

All values are computed from the predictions of a run (`RUN/logits`), not read from `results.json`; intervals of 95 %.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.places import plain_name
from common.intervals import Interval, bootstrap_interval
from common.text import markdown_table
from pipeline.checkpoint.run_directory import RESULTS, ResultsRecord, read_results
from pipeline.settings.finetune_flags import seed_directories
from pipeline.tasks.metrics import NOT_ABOVE
from pipeline.tasks.own_tasks import task_of
from pipeline.tasks.task import Statistic, Task

TITLES = (
    *("run", "weights", "task", "split", "examples", "metric", "majority class", "random weights", "this run"),
    *("gain, 95 %", "verdict"),
)


@dataclass(frozen=True)
class TaskRun:
    """One fine-tuning run, or the summary of several seeds: its directory, its task, its `results.json`."""

    directory: Path
    task: Task
    results: ResultsRecord


def find_runs(directories: Sequence[Path]) -> list[TaskRun]:
    """Every fine-tuning run in or below `directories`, by path. A run of several seeds counts once, as their summary.

    Raises UserError for a missing directory or a `results.json` that cannot be read.
    """
    ended: set[Path] = set()
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"{directory} is no directory; name --output directories of pipeline.finetune")
        ended |= {path.parent for path in directory.rglob(RESULTS)}
    seeds = {directory for directory in ended if directory.name.startswith("seed-") and directory.parent in ended}
    return [read_run(directory) for directory in sorted(ended - seeds)]


def read_run(directory: Path) -> TaskRun:
    """The run in a directory. Raises UserError if its `results.json` cannot be read."""
    results: ResultsRecord = read_results(directory / RESULTS)
    plain_name(results.task, directory / RESULTS)
    return TaskRun(directory, task_of(results.task, results.own_task, directory / RESULTS), results)


def member_directories(run: Path) -> list[Path]:
    """The directories of `run` that hold logits: itself, or one for each seed; none if no split was predicted."""
    return [run] if (run / "logits").is_dir() else seed_directories(run, "logits")


def read_predictions(run: Path, task: Task) -> dict[str, Any]:
    """The predictions of each split of one run, by name. Raises UserError for a file that is damaged."""
    found = {}
    for path in sorted((run / "logits").glob(f"*{task.kind.ending}")):
        found[path.stem] = predictions = task.kind.predictions.load(path)
        logits = getattr(predictions, "logits", None)
        if logits is not None and logits.shape[1] != len(task.labels):
            raise UserError(f"{path} has {logits.shape[1]} logits a row and {task.name} {len(task.labels)}; restore it")
    return found


def gain_of(task: Task, first: Any, second: Any) -> Interval:
    """95 % bootstrap interval of the metric of `first` minus that of `second`, in percentage points.

    Each resample takes the same examples for both, so that an example that is hard for both does not widen it.
    Raises ValueError: the two do not hold the same examples, or their labels are not known.
    """
    low, high = bootstrap_interval(*difference_of(task, first, second))
    return 100 * low, 100 * high


def difference_of(task: Task, first: Any, second: Any) -> tuple[Statistic, int]:
    """A function from the numbers (M,) of examples to the difference of the two metrics, and the number of examples.

    Raises ValueError as `gain_of`.
    """
    kind, metric = task.kind, task.metrics[0]
    ours, theirs = (kind.statistic(task, metric, run) for run in (first, second.aligned(first)))
    return lambda rows: ours(rows) - theirs(rows), len(first)


def verdict_of(weights: str, gain: Interval | None, exceeds_majority: bool = True) -> str:
    """The conclusion that the interval of a gain over random weights allows."""
    if not exceeds_majority:
        return NOT_ABOVE  # it has learned nothing that a gain could show
    if weights == "random":
        return "random weights themselves"
    if gain is None:
        return "no --random-weights run"
    if gain[0] > 0:
        return "pre-training helps"
    return "pre-training hurts" if gain[1] < 0 else "no difference shown"


def compare(runs: Sequence[Path], random: Sequence[Path]) -> str:
    """A table of every labelled split of the runs below directories, beside the same model from random weights.

    Of several seeds the first one is compared. The interval of the gain is in percentage points. Raises UserError: a
    file is damaged, `random` has no run from random weights, the two runs of a task hold different examples, or no
    example has a label.
    """
    untrained: dict[str, Mapping[str, Any]] = {}
    for run in find_runs(random):
        if run.results.random_weights and (found := _first_predictions(run)):
            untrained.setdefault(_task_and_model(run), found)
    if random and not untrained:
        raise UserError("--random: no run there is from random weights; make one with finetune --random-weights")
    rows = [row for run in find_runs(runs) for row in _rows(run, untrained.get(_task_and_model(run), {}))]
    if not rows:
        raise UserError("none of the runs has predictions of labelled examples; fine-tune with a dev split")
    return markdown_table(TITLES, rows, "llllrlrrrrl")


def _task_and_model(run: TaskRun) -> str:
    sizes = {key: n for key, n in (run.results.model or {}).items() if key.endswith(("_size", "_layers", "_sharing"))}
    return json.dumps([run.task.name, run.results.own_task, sizes], sort_keys=True, default=vars)


def _first_predictions(run: TaskRun) -> Mapping[str, Any]:
    members = member_directories(run.directory)
    return read_predictions(members[0], run.task) if members else {}


def _rows(run: TaskRun, untrained: Mapping[str, Any]) -> Iterator[list[object]]:
    """The row of each labelled split of a run; `untrained` has the predictions of the model from random weights."""
    task, weights = run.task, "random" if run.results.random_weights else "pre-trained"
    for split, predictions in _first_predictions(run).items():
        estimate = task.estimate(predictions)
        if estimate is None:
            continue
        random, gain = None, None
        try:
            if split in untrained:
                random, gain = task.estimate(untrained[split]), gain_of(task, predictions, untrained[split])
        except ValueError as error:
            raise UserError(f"{run.directory} and the random weights differ on {split}: {error}") from None
        majority = f"{estimate.majority:.1f}" if estimate.majority else ""
        points = "" if gain is None else f"{gain[0]:+.1f} to {gain[1]:+.1f}"
        # Of numbers there is no class.
        verdict = verdict_of(weights, gain, task.kind.predicts_numbers or estimate.exceeds_majority)
        measured = [majority, random or "not run", estimate, points, verdict]
        yield [run.directory, weights, task.name, split, len(predictions), task.metrics[0], *measured]
