"""Reads runs of both kinds, finished or not, to compare them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.files.json_files import read_object
from model.counts import parameter_counts
from pipeline.checkpoint.run_records import SETTINGS, model_of, read_settings
from pipeline.tracking.tracker import shown_flat
from pipeline.training import metrics_log

Point = tuple[float, float]
Records = Sequence[Mapping[str, Any]]
MISSING = "-"
_REPEATED = ("deepspeed.optimizer.", "deepspeed.scheduler.", "deepspeed.train_batch_size", "command")


@dataclass(frozen=True)
class ComparedRun:
    """A run with its records.

    Attributes:
        name: its path below the directory that all compared runs have in common.
        directory: of the run.
        settings: its settings.json.
        training: the records of split "train" in metrics.jsonl, by step.
        evaluations: those of split "eval".
    """

    name: str
    directory: Path
    settings: Mapping[str, Any]
    training: Records
    evaluations: Records

    @property
    def objective(self) -> str | None:
        """The objective of a pre-training run; None for fine-tuning."""
        found = self.settings.get("objective")
        return None if found is None else str(found)

    @property
    def kind(self) -> str:
        """What the run trains, for people."""
        return f"fine-tuning, {self.settings['task']}" if self.objective is None else f"pre-training, {self.objective}"

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return (self.directory / "done").exists()

    @property
    def parameters(self) -> int:
        """Of the encoder with its pre-training heads."""
        return parameter_counts(model_of(dict(self.settings), self.directory / SETTINGS)).total

    @property
    def step(self) -> int:
        """The last step that was logged."""
        return max((int(records[-1]["step"]) for records in (self.training, self.evaluations) if records), default=0)

    def last(self, name: str, split: str = "train") -> float | None:
        """The newest number of this name; None if there is none."""
        records = self.training if split == "train" else self.evaluations
        return next((value for record in reversed(records) if (value := number(record, name)) is not None), None)

    @property
    def gpu_hours(self) -> float | None:
        """Hours of all starts times the ranks of the last one."""
        seconds = self.last("seconds")
        return None if seconds is None else seconds / 3600 * (self.settings.get("world_size") or 1)

    def points(self, split: str, name: str, x: str = "step") -> list[Point]:
        """(x, value) of each record that has both numbers; `x` is "step", "tokens" or "hours".

        Tokens and hours of an evaluation lie between those of the training records around it.
        """
        if split == "train":
            return [(at, value) for record in self.training if (at := _x_of(record, x)) is not None
                    and (value := number(record, name)) is not None]  # fmt: skip
        steps, places = [0.0], [0.0]
        for record in self.training:
            if (place := _x_of(record, x)) is not None:
                steps.append(record["step"])
                places.append(place)
        found = []
        for record in self.evaluations:
            # Not every step that is evaluated is logged.
            place = record["step"] if x == "step" else np.interp(record["step"], steps, places, right=math.nan)
            value = number(record, name)
            if value is not None and not math.isnan(place):
                found.append((float(place), value))
        return found


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A finite number of a record; None for anything else."""
    value = record.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _x_of(record: Mapping[str, Any], x: str) -> float | None:
    if x != "hours":
        return number(record, x)
    seconds = number(record, "seconds")
    return None if seconds is None else seconds / 3600


def sustained_speed(training: Records) -> float | None:
    """Tokens a second of all training since the first record, evaluations and saves left out; None if unknown.

    The speed of each record is that of its interval. A mean of speeds would count a short interval like a long one.
    """
    tokens = seconds = 0.0
    for _, of_interval, lasted in _intervals(training):
        tokens, seconds = tokens + of_interval, seconds + lasted
    return tokens / seconds if seconds else None


def mean_over_time(training: Records, name: str) -> float | None:
    """The mean of a share, such as the MFU, over the time of `sustained_speed`; None if unknown."""
    total = seconds = 0.0
    for record, _, lasted in _intervals(training):
        if (value := number(record, name)) is not None:
            total, seconds = total + value * lasted, seconds + lasted
    return total / seconds if seconds else None


def _intervals(training: Records) -> Iterator[tuple[Mapping[str, Any], float, float]]:
    """Yields each record that has a speed, with the tokens and the seconds of its interval."""
    before = 0.0
    for record in training:
        so_far, speed = number(record, "tokens"), number(record, "tokens_per_second")
        if so_far is not None and speed is not None and speed > 0 and so_far >= before:
            yield record, so_far - before, (so_far - before) / speed
            before = so_far


def find(directories: Sequence[Path]) -> list[ComparedRun]:
    """Every run in or below `directories`, by path. Raises UserError if there is none, or one cannot be read."""
    places: dict[Path, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"--runs {directory} is no directory; name --output directories of runs")
        for path in sorted(directory.rglob(SETTINGS)):
            if path.is_file() and _is_run(path):
                places.setdefault(path.parent.resolve(), path.parent)
    if not places:
        raise UserError(f"--runs: no run in {', '.join(map(str, directories))}; name --output directories of runs")
    names = _names(list(places))
    return [_read(names[place], shown) for place, shown in sorted(places.items())]


def _is_run(path: Path) -> bool:
    """Whether the file is ours: other programs use the name as well."""
    content = read_object(path, "restore it, or leave that run out")
    return "objective" in content or ("task" in content and "model" in content)


def _names(places: Sequence[Path]) -> dict[Path, str]:
    """Each place without the part that all have in common."""
    if len(places) == 1:
        return {places[0]: places[0].name}
    shared = 0
    while len({place.parts[: shared + 1] for place in places}) == 1 and shared + 1 < min(
        len(place.parts) for place in places
    ):
        shared += 1
    return {place: "/".join(place.parts[shared:]) for place in places}


def _read(name: str, directory: Path) -> ComparedRun:
    training = metrics_log.read_records(directory, "train")
    evaluations = metrics_log.read_records(directory, "eval")
    return ComparedRun(name, directory, read_settings(directory / SETTINGS), training, evaluations)


def differing_settings(runs: Sequence[ComparedRun]) -> Iterator[tuple[str, list[str]]]:
    """Yields the name and the values, one for each run, of every setting that is not the same in all runs."""
    values = [{name: str(value) for name, value in shown_flat(run.settings).items()} for run in runs]
    for name in dict.fromkeys(name for settings in values for name in settings):
        row = [settings.get(name, MISSING) for settings in values]
        if len(set(row)) > 1 and not name.startswith(_REPEATED):
            yield name, row
