"""What fine-tuning runs have left: found, read, and led back to the pre-training that they started from."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import UserError
from pipeline import monitor
from pipeline.tasks.predictions import Answers, Logits, load_answers

RESULTS = "results.json"


@dataclass(frozen=True)
class Pretrained:
    """A pre-training run.

    Attributes:
        directory: of the run.
        settings: its `settings.json`.
    """

    directory: Path
    settings: Mapping[str, Any]

    def last(self, split: str) -> dict[str, Any]:
        """The newest record of "train" or "eval" in its metrics; empty if there is none."""
        return monitor.last_record(self.directory, split) or {}


@dataclass(frozen=True)
class TaskRun:
    """One fine-tuning run, the median of several seeds, or an ensemble.

    Attributes:
        directory: of the run.
        task: e.g. "sst2".
        metrics: split to metric to value; the median where there are several seeds.
        seeds: how many seeds these are of.
        members: the runs that an ensemble is of; empty otherwise.
        origins: the pre-training runs that the weights come from, one a member; fewer where that is not known any
            more, or where the weights were random.
        results: all of `results.json`.
    """

    directory: Path
    task: str
    metrics: Mapping[str, Mapping[str, float]]
    seeds: int
    members: tuple[str, ...]
    origins: tuple[Pretrained, ...]
    results: Mapping[str, Any]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises UserError if there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); make the run again, or leave it out") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object; make the run again, or leave it out")
    return value


def find_runs(directories: Sequence[Path]) -> list[TaskRun]:
    """Every fine-tuning run in or below `directories`, by path; of several seeds only what sums them up.

    Raises UserError for a directory that is missing or a `results.json` that cannot be read.
    """
    found = set()
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"--runs {directory} is no directory; name --output directories of pipeline.finetune")
        found |= {path.parent for path in directory.rglob(RESULTS)}
    return [_read(directory) for directory in sorted(found) if not _is_seed(directory) or directory.parent not in found]


def _is_seed(directory: Path) -> bool:
    """Whether it is the run of one of several seeds."""
    return directory.name.startswith("seed-")


def _read(directory: Path) -> TaskRun:
    results = read_json(directory / RESULTS)
    try:
        seeds, members = results.get("seeds"), tuple(results.get("ensemble", ()))
        there = [Path(member) / RESULTS for member in members if (Path(member) / RESULTS).exists()]
        origins = [find_origin(read_json(path)) for path in there] if members else [find_origin(results)]
        return TaskRun(
            directory=directory,
            task=results["task"],
            metrics=results["median"] if seeds else results["metrics"],
            seeds=len(seeds) if seeds else 1,
            members=members,
            origins=tuple(origin for origin in origins if origin is not None),
            results=results,
        )
    except (KeyError, TypeError) as error:
        raise UserError(f"{directory / RESULTS} lacks {error}; make the run again, or leave it out") from None


def find_origin(results: Mapping[str, Any]) -> Pretrained | None:
    """The pre-training run that a fine-tuning run's weights come from, through any fine-tuning in between."""
    init = results.get("init")
    if not isinstance(init, str):
        return None
    for directory in (Path(init), Path(init).parent):
        if (directory / RESULTS).exists():
            return find_origin(read_json(directory / RESULTS))
        if (directory / "settings.json").exists():
            settings = read_json(directory / "settings.json")
            return Pretrained(directory, settings) if "objective" in settings else None
    return None


def find_pretrained(directories: Sequence[Path], runs: Sequence[TaskRun]) -> list[Pretrained]:
    """Every pre-training run in or below `directories`, and those that `runs` started from, by path."""
    found = {origin.directory.resolve(): origin for run in runs for origin in run.origins}
    for path in (path for directory in directories for path in directory.rglob("settings.json")):
        settings = read_json(path)
        if "objective" in settings:
            found.setdefault(path.parent.resolve(), Pretrained(path.parent, settings))
    return [found[path] for path in sorted(found)]


def digest_of(shards: Path | None) -> str | None:
    """What runs on these shards have as their data; None for none. Raises UserError if it is no shard set."""
    if shards is None:
        return None
    manifest = shards / "manifest.json"
    if not manifest.exists():
        raise UserError(f"{shards} holds no shards (no manifest.json); name the --data of the runs with more data")
    return hashlib.sha256(manifest.read_bytes()).hexdigest()


def member_directories(run: Path) -> list[Path]:
    """The directories under `run` that hold logits: itself, or one a seed. Raises UserError if there are none."""
    found = [run] if (run / "logits").is_dir() else sorted(path.parent for path in run.glob("seed-*/logits"))
    if not found:
        raise UserError(f"{run} holds no logits; name an --output of pipeline.finetune that has ended")
    return found


def read_predictions(run: Path) -> Iterator[tuple[str, Logits | dict[str, Answers]]]:
    """The splits of one run, each with its logits, or with its answers to SQuAD."""
    for path in sorted((run / "logits").iterdir()):
        if path.suffix == ".npz":
            yield path.stem, Logits.load(path)
        elif path.suffix == ".json":
            yield path.stem, load_answers(path)
