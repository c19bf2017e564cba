"""Reads runs of both kinds, finished or not, to compare them, and prints the table of one."""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.text import quantity
from model.counts import parameter_counts
from pipeline.analysis.finished_runs import run_directories
from pipeline.checkpoint.run_records import SETTINGS, model_of, read_settings
from pipeline.tracking.tracker import shown_flat
from pipeline.training import metrics_log, rollback

Point = tuple[float, float]
Records = Sequence[Mapping[str, Any]]
MISSING = "-"
_REPEATED = ("deepspeed.optimizer.", "deepspeed.scheduler.", "deepspeed.train_batch_size", "command")
_LARGEST = 1e30  # of a drawn value: the width of larger ranges may overflow


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
        return self.settings.get("objective")

    @property
    def kind(self) -> str:
        """What the run trains, for people."""
        return f"fine-tuning, {self.settings['task']}" if self.objective is None else f"pre-training, {self.objective}"

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

    def highest(self, name: str) -> float | None:
        """The highest number of this name in training; None if there is none."""
        return max((value for _, value in self.points("train", name)), default=None)

    @property
    def against_unigram(self) -> str:
        """How far the newest held-out MLM loss is from the unigram entropy, such as "8.3 % above"; "" if unknown."""
        loss, entropy = self.last("mlm_loss", "eval"), self.last("mlm_unigram_entropy", "eval")
        if loss is None or not entropy:
            return ""
        return f"{abs(100 * (1 - loss / entropy)):.1f} % {'below' if loss <= entropy else 'above'}"

    @property
    def gpu_hours(self) -> float | None:
        """Hours of all starts times the ranks of the last one."""
        seconds = self.last("seconds")
        return None if seconds is None else seconds / 3600 * (self.settings.get("world_size") or 1)

    def points(self, split: str, name: str, x: str = "step") -> list[Point]:
        """(x, value) of each record that has both numbers; `x` is "step", "tokens" or "hours".

        Tokens and hours of an evaluation lie between those of the training records around it.
        """
        key, unit = ("seconds", 3600) if x == "hours" else (x, 1)
        known = [(record, place / unit) for record in self.training if (place := number(record, key)) is not None]
        if split == "eval":
            # Not every step that is evaluated is logged.
            steps, places = [0.0, *(record["step"] for record, _ in known)], [0.0, *(place for _, place in known)]
            known = [
                (record, record["step"] if x == "step" else float(np.interp(record["step"], steps, places, right=-1)))
                for record in self.evaluations
            ]
        values = [(place, number(record, name)) for record, place in known if 0 <= place < _LARGEST]
        return [(place, value) for place, value in values if value is not None and abs(value) < _LARGEST]


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A finite number of a record; None for anything else, also for an integer that no float can hold."""
    value = record.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    return None


def sustained_speed(training: Records) -> float | None:
    """Tokens a second of all training since the first record, evaluations and saves left out; None if unknown.

    The speed of each record is that of its interval. A mean of speeds would count a short interval like a long one.
    """
    parts = [(tokens, seconds) for _, tokens, seconds in _intervals(training)]
    return sum(tokens for tokens, _ in parts) / sum(seconds for _, seconds in parts) if parts else None


def mean_over_time(training: Records, name: str) -> float | None:
    """The mean of a share, such as the MFU, over the time of `sustained_speed`; None if unknown."""
    parts = [(value, s) for record, _, s in _intervals(training) if (value := number(record, name)) is not None]
    return sum(value * seconds for value, seconds in parts) / sum(s for _, s in parts) if parts else None


def _intervals(training: Records) -> Iterator[tuple[Mapping[str, Any], float, float]]:
    """Yields each record that has a speed, with the tokens and the seconds of its interval."""
    before = 0.0
    for record in training:
        so_far, speed = number(record, "tokens"), number(record, "tokens_per_second")
        if so_far is not None and speed is not None and speed > 0 and so_far > before:
            yield record, so_far - before, (so_far - before) / speed
            before = so_far


def find(directories: Sequence[Path]) -> list[ComparedRun]:
    """Every run in or below `directories`, by path. Raises UserError if there is none, or one cannot be read."""
    places: dict[Path, Path] = {}
    for directory in run_directories(directories):
        places.setdefault(directory.resolve(), directory)
    if not places:
        raise UserError(f"--runs: no run in {', '.join(map(str, directories))}; name --output directories of runs")
    shared = os.path.commonpath(places)
    names = {place: name if (name := os.path.relpath(place, shared)) != "." else place.name for place in places}
    return [read_run(shown, names[place]) for place, shown in sorted(places.items())]


def read_run(directory: Path, name: str) -> ComparedRun:
    """The run in a directory. Raises UserError for a file that cannot be read."""
    training, evaluations = (metrics_log.read_records(directory, split) for split in ("train", "eval"))
    return ComparedRun(name, directory, read_settings(directory / SETTINGS), training, evaluations)


def differing_settings(runs: Sequence[ComparedRun]) -> Iterator[tuple[str, list[str]]]:
    """Yields the name and the values, one for each run, of every setting that is not the same in all runs."""
    values = [{name: str(value) for name, value in shown_flat(run.settings).items()} for run in runs]
    for name in dict.fromkeys(name for settings in values for name in settings):
        row = [settings.get(name, MISSING) for settings in values]
        if len(set(row)) > 1 and not name.startswith(_REPEATED):
            yield name, row


def summarise(directory: Path, export: Path) -> str:
    """A short table of a pre-training run: its last evaluation, its speed, and its files.

    Raises:
        UserError: the directory holds no run, a fine-tuning run, or a run without an evaluation on held-out rows.
    """
    run = read_run(directory, directory.name)
    if run.objective is None:
        raise UserError(f"{directory} is a fine-tuning run; its metrics are in {directory / 'results.json'}")
    if not run.evaluations or (speed := sustained_speed(run.training)) is None:
        raise UserError(f"{directory} has not been evaluated or has no speed; train it on with --eval-data DIR")

    def last(name: str, split: str = "eval") -> float:
        value = run.last(name, split)
        return math.nan if value is None else value

    settings, accuracy = run.settings, f"{run.objective}_accuracy"
    rows = {
        "steps": f"{run.step:,} of {settings['steps']:,}, {last('tokens', 'train'):,.0f} tokens",
        "held-out MLM loss": f"{last('mlm_loss'):.3f} nats, {run.against_unigram} the unigram entropy "
        f"{last('mlm_unigram_entropy'):.3f}",
        "held-out MLM accuracy": f"{100 * last('mlm_accuracy'):.1f} % of {last('predictions'):,.0f} tokens",
    }
    if run.last(accuracy, "eval") is not None:
        value, low, high = (100 * last(f"{accuracy}{end}") for end in ("", "_low", "_high"))
        rows[f"held-out {run.objective.upper()} accuracy"] = (
            f"{value:.1f} % (95 % interval {low:.1f} to {high:.1f}) of {last('pairs'):,.0f} pairs"
        )
    ranks = f" on {quantity(ranks, 'rank')}" if (ranks := settings.get("world_size")) else ""
    rows["training speed"] = f"{speed:,.0f} tokens/s in {settings.get('precision', 'unknown precision')}"
    rows["time"] = f"{last('seconds', 'train'):.0f} s{ranks}"
    if rollbacks := rollback.read(directory):
        rows["divergence"] = rollback.describe(rollbacks)
    rows |= {"run": str(directory), "exported model": str(export)}
    lines = [f"{name:<24}{value}" for name, value in rows.items()]
    return "\n".join([*lines, "", "to see the curves:", f"  tensorboard --logdir {directory / 'tensorboard'}"])
