"""Finds fine-tuning runs that have ended, and reads their predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.places import plain_name
from pipeline.checkpoint.results import RESULTS, ResultsRecord, read_results
from pipeline.tasks.own_tasks import task_of
from pipeline.tasks.task import Task


@dataclass(frozen=True)
class TaskRun:
    """One fine-tuning run, or the summary of several seeds.

    Attributes:
        directory: of the run.
        task: what it was fine-tuned on.
        results: the content of `results.json`.
    """

    directory: Path
    task: Task
    results: ResultsRecord

    @property
    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Split to metric to value; of several seeds the median."""
        metrics = self.results.median if self.results.seeds else self.results.metrics
        assert metrics is not None  # `read_results` has checked it
        return metrics


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
    """The directories of `run` that hold logits: itself, or one for each seed. Raises UserError if there are none."""
    members = [run] if (run / "logits").is_dir() else sorted(path.parent for path in run.glob("seed-*/logits"))
    if not members:
        raise UserError(f"{run} holds no logits; name an --output of pipeline.finetune that has ended")
    return members


def read_predictions(run: Path, task: Task) -> dict[str, Any]:
    """The predictions of each split of one run, by name. Raises UserError for a file that is damaged."""
    files = sorted((run / "logits").glob(f"*{task.kind.ending}"))
    found = {path.stem: task.kind.predictions.load(path) for path in files}
    for path in files:
        logits = getattr(found[path.stem], "logits", None)
        if logits is not None and logits.shape[1] != len(task.labels):
            raise UserError(f"{path} has {logits.shape[1]} logits a row and {task.name} {len(task.labels)}; restore it")
    return found
