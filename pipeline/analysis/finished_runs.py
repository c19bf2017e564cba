"""Finds and reads fine-tuning runs that have ended, and traces them back to their pre-training."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.json_files import read_bytes, read_object
from common.files.places import plain_name
from pipeline.checkpoint.run_records import RESULTS, SETTINGS, PretrainRecord, read_record, read_results
from pipeline.tasks.own_tasks import task_of
from pipeline.tasks.task import Task
from pipeline.training import metrics_file

MAX_ORIGINS = 20
"""Runs in a chain of fine-tunings that start from each other."""


@dataclass(frozen=True)
class Pretrained:
    """A pre-training run.

    Attributes:
        directory: of the run.
        record: its `settings.json`.
    """

    directory: Path
    record: PretrainRecord

    def last(self, split: str) -> dict[str, Any]:
        """The newest record of split "train" or "eval" in `metrics.jsonl`; empty if there is none."""
        return metrics_file.last_record(self.directory, split) or {}


@dataclass(frozen=True)
class TaskRun:
    """One fine-tuning run, the median of several seeds, or an ensemble.

    Attributes:
        directory: of the run.
        task: what it was fine-tuned on.
        metrics: split to metric to value; of several seeds the median.
        seeds: the number of seeds.
        members: the runs that an ensemble averages; empty for any other run.
        origins: the pre-training runs that the weights come from, one for each member. Members with random weights,
            and members whose pre-training run is gone, have none.
        results: the content of `results.json`.
    """

    directory: Path
    task: Task
    metrics: Mapping[str, Mapping[str, float]]
    seeds: int
    members: tuple[str, ...]
    origins: tuple[Pretrained, ...]
    results: Mapping[str, Any]


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
    return [_read(directory) for directory in sorted(ended - seeds)]


def _read(directory: Path) -> TaskRun:
    results = read_results(directory / RESULTS)
    plain_name(results["task"], directory / RESULTS)
    task = task_of(results, directory / RESULTS)
    seeds, members = results.get("seeds"), tuple(results.get("ensemble") or ())
    existing = [path for member in members if (path := Path(member) / RESULTS).exists()]
    origins = [find_origin(read_results(path)) for path in existing] if members else [find_origin(results)]
    return TaskRun(
        directory=directory,
        task=task,
        metrics=results["median"] if seeds else results["metrics"],
        seeds=len(seeds) if seeds else 1,
        members=members,
        origins=tuple(origin for origin in origins if origin is not None),
        results=results,
    )


def find_origin(results: Mapping[str, Any], depth: int = 0) -> Pretrained | None:
    """The pre-training run that a fine-tuning run's weights come from, also through other fine-tuning runs.

    Args:
        results: of the run.
        depth: runs that were passed on the way.
    Raises:
        UserError: a results.json on the way cannot be read, or the runs refer to each other in a circle.
    """
    init = results.get("init")
    if init is None:
        return None
    if depth > MAX_ORIGINS:
        raise UserError(f"the runs from {init} on start from each other; restore their {RESULTS}")
    for directory in (Path(init), Path(init).parent):
        if os.path.exists(directory / RESULTS):
            return find_origin(read_results(directory / RESULTS), depth + 1)
        if os.path.exists(directory / SETTINGS):
            record = read_record(directory)
            return Pretrained(directory, record) if isinstance(record, PretrainRecord) else None
    return None


def find_pretrained(directories: Sequence[Path], runs: Sequence[TaskRun]) -> list[Pretrained]:
    """Every pre-training run in or below `directories`, and the origins of `runs`, by path.

    Raises UserError for a missing directory, or a settings.json that cannot be read.
    """
    by_path = {origin.directory.resolve(): origin for run in runs for origin in run.origins}
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"--runs {directory} is no directory; name --output directories of runs")
        for path in sorted(directory.rglob(SETTINGS)):
            content = read_object(path, "restore it, or leave that run out")
            if "objective" in content:  # other programs use the name as well
                record = read_record(path.parent)
                assert isinstance(record, PretrainRecord)
                by_path.setdefault(path.parent.resolve(), Pretrained(path.parent, record))
    return [by_path[path] for path in sorted(by_path)]


def digest_of(shards: Path | None) -> str | None:
    """The digest by which the settings of a run name these shards. None for None; UserError if there are no shards."""
    if shards is None:
        return None
    manifest = shards / "manifest.json"
    if not manifest.exists():
        raise UserError(f"{shards} holds no shards (no manifest.json); name the --data of the runs with more data")
    return hashlib.sha256(read_bytes(manifest, "name the --data of the runs with more data")).hexdigest()


def member_directories(run: Path) -> list[Path]:
    """The directories of `run` that hold logits: itself, or one for each seed. Raises UserError if there are none."""
    members = [run] if (run / "logits").is_dir() else sorted(path.parent for path in run.glob("seed-*/logits"))
    if not members:
        raise UserError(f"{run} holds no logits; name an --output of pipeline.finetune that has ended")
    return members


def read_predictions(run: Path, task: Task) -> dict[str, Any]:
    """The predictions of each split of one run, by name. Raises UserError for a file that is damaged or empty."""
    by_file = {path: task.kind.predictions.load(path) for path in sorted((run / "logits").glob(f"*{task.kind.ending}"))}
    if empty := [path for path, predictions in by_file.items() if not len(predictions)]:
        raise UserError(f"{empty[0]} holds no predictions; fine-tune again")
    return {path.stem: predictions for path, predictions in by_file.items()}
