"""A run's directory: its lock, its settings, its vocabulary, and results.json of fine-tuning.

Only one command at a time may train in it, and only with the settings of its first start.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from common.errors import UserError
from common.files import atomic, locks, outputs, places
from common.files.json_files import Count, Finite, check_as, read_object
from data_prep.text.vocabulary import VOCABULARY_FILES, Vocabulary
from pipeline.settings.run_settings import RunSettings
from pipeline.settings.settings_file import SETTINGS, read_settings, write_settings
from pipeline.tasks.own_tasks import OwnRecord

if TYPE_CHECKING:
    from pipeline.distributed.control import ControlGroup

RESULTS = "results.json"
_REMEDY = "restore it, or leave that run out"
_CONTENTS = {"data_digests": "other shards in --data", "data_digest": "other examples in --data"}
EXPORT_TOOL = "pipeline.export"  # the writer that the marker of an export names

OWN_NAMES = (
    *("config.yaml", "checkpoints", "metrics.jsonl", "tensorboard", "export", "done"),
    *VOCABULARY_FILES,
    *(RESULTS, "logits", "submission", "hangs"),
)
"""The names that a run writes into its directory after settings.json."""


def check_output(output: Path, reopens: bool = False) -> None:
    """Raises UserError if the directory holds files that the run would overwrite or delete but has not written.

    A directory without settings.json is not a run, so it must not hold files with names that a run uses. In a run that
    is not done, or `reopens`, `export` may hold only the run's own files. The directory must be writable.
    """
    if not (output / "done").exists():
        places.check_directory(output, "--output")
    if not (output / SETTINGS).exists():
        _check_unused(output, OWN_NAMES)
    elif reopens or not (output / "done").exists():
        outputs.check(output / "export", EXPORT_TOOL, "..")


def check_summary(output: Path) -> None:
    """As `check_output`, for the directory of several seeds' runs."""
    places.check_directory(output, "--output")
    if not any(output.glob("seed-*/settings.json")):
        _check_unused(output, (RESULTS,))


def _check_unused(output: Path, names: Sequence[str]) -> None:
    if taken := [name for name in names if os.path.lexists(output / name)]:
        raise UserError(
            f"{output} holds {', '.join(taken)} and no {SETTINGS}; move them away, or give another --output"
        )


def check_same_settings(settings: RunSettings) -> None:
    """Raises UserError if the directory of the run holds one that differs in what a resume must not change."""
    output = settings.flags.output
    if not (output / SETTINGS).exists():
        return
    if changed := changed_settings(read_settings(output).fixed_values(), settings.fixed_values()):
        raise UserError(
            f"{output} holds a run with other settings ({'; '.join(changed)}); "
            "give these again to resume it, or choose another --output"
        )


def write_settings_and_vocabulary(settings: RunSettings, config: str, vocabulary: Vocabulary) -> None:
    """Makes the run's directory and writes settings.json, config.yaml and the vocabulary. config: the flags as YAML."""
    output = settings.flags.output
    output.mkdir(parents=True, exist_ok=True)
    write_settings(output, settings)  # first: it makes this a run
    atomic.write_text(output / "config.yaml", config)
    atomic.write_bytes(output / vocabulary.file_name, vocabulary.serialized)


def changed_settings(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The settings that differ, each as `name: old -> new`."""
    lines = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += changed_settings(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(_CONTENTS.get(key) or f"{prefix}{key}: {before} -> {after}")
    return lines


@contextlib.contextmanager
def lock_run(output: Path, control: "ControlGroup", check: Callable[[], None], seconds: float = 0.0) -> Iterator[None]:
    """Makes `output`, and holds its lock on rank 0 in the block. Collective. The file stays behind.

    `check` is called on rank 0 with the lock, and raises UserError if another command has changed the run since this
    one looked at it. A lock of another process is waited for, for `seconds`. Raises UserError on all ranks.
    """
    held = contextlib.ExitStack()
    lock = output / locks.LOCK

    def say(line: str) -> None:
        print(line, flush=True)

    def take() -> None:
        held.enter_context(locks.holding(lock, output, seconds, "--output", stays=True, say=say))
        check()

    with held:
        control.on_rank_0(take)
        yield


Metrics = dict[str, dict[str, Finite]]  # split to metric to value


@dataclass(frozen=True, kw_only=True)
class ResultsRecord:
    """results.json of a fine-tuning run (`metrics`), or of several seeds (`seeds`, `median`).

    The fields are the keys that some command reads.
    """

    task: str
    own_task: OwnRecord | None = None
    init: str | None = None
    random_weights: bool | None = None
    model: dict[str, Any] | None = None
    metrics: Metrics | None = None
    seeds: list[dict[str, Any]] | None = None
    median: Metrics | None = None
    spread: dict[str, dict[str, list[Finite]]] | None = None
    steps: Count | None = None
    best_step: Count | None = None
    predicted_data: str | None = None

    @property
    def scores(self) -> Metrics:
        """The metrics of the run; of several seeds their median."""
        scores = self.median if self.seeds else self.metrics
        assert scores is not None  # `read_results` has checked it
        return scores


R = TypeVar("R", bound=ResultsRecord)


@dataclass(frozen=True, kw_only=True)
class OneRunRecord(ResultsRecord):
    """results.json of one seed, from which a summary of several seeds is made."""

    seed: Count
    best_step: Count
    metrics: Metrics
    model: dict[str, Any]
    hyperparameters: dict[str, Any]
    examples: dict[str, Count]


def read_results(path: Path, kind: type[R] = ResultsRecord) -> R:  # type: ignore[assignment]
    """The content of a results.json. Raises UserError if it cannot be read or does not fit `kind`."""
    results = check_as(read_object(path, _REMEDY), kind, path, _REMEDY, extra="ignore")
    if (results.median if results.seeds else results.metrics) is None:
        raise UserError(f"{path} lacks the key {'median' if results.seeds else 'metrics'}; {_REMEDY}")
    return results
