"""The interface of a tracker, and what a tracker knows of its run."""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.files import atomic
from common.files.json_files import check_as, read_object

TRACKERS = "trackers.json"
"""In the run's directory: for each tracker the id under which it knows the run."""
BLOCKS = ("tensorboard", "wandb", "csv_monitor", "comet")
"""The keys of a DeepSpeed JSON for DeepSpeed's own monitors. DeepSpeed itself does not get them."""

_lock = threading.Lock()
"""The trackers of a run open in threads of their own, and keep their ids in one file."""

_REMEDY = "restore it, or move it away: the trackers then begin anew"

Plain = int | float | str | bool


@dataclass(frozen=True)
class Scalars:
    """The scalars of one record, for curves.

    Attributes:
        step: of the run.
        split: "train" or "eval".
        values: finite numbers by tag, such as "train/loss".
        consumed: "tokens", without padding, and "epochs" so far, if they are known.
    """

    step: int
    split: str
    values: dict[str, float]
    consumed: dict[str, float] = field(default_factory=dict)


class Tracker(ABC):
    """Sends the scalars of a run to a service or a file. An exception is printed; training goes on."""

    @abstractmethod
    def log(self, scalars: Scalars) -> None:
        """Takes the scalars of one record."""

    @abstractmethod
    def close(self, finished: bool) -> None:
        """Sends what still waits. Nothing comes after this call.

        Args:
            finished: whether the run has ended. Otherwise it may be resumed.
        """


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it.

    Attributes:
        directory: of the run, which exists.
        step: at which the run starts or resumes.
        settings: the content of settings.json.
        on_gpu: whether it trains on a GPU.
        sent: step and split of the records after `step` that an earlier start logged before it was killed, and that
            this start will log again as they were.
    """

    directory: Path
    step: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    on_gpu: bool = False
    sent: frozenset[tuple[int, str]] = frozenset()

    @property
    def name(self) -> str:
        """The run's name: that of its directory; for one of several seeds with the name of the directory above."""
        place = self.directory.resolve()
        return f"{place.parent.name}-{place.name}" if place.name.startswith("seed-") else place.name

    @property
    def objective(self) -> str | None:
        """The objective "sop", "nsp" or "mlm" of a pre-training run; None for fine-tuning."""
        objective: str | None = self.settings.get("objective")
        return objective

    def id_of(self, tracker: str) -> str | None:
        """The id under which `tracker` knows the run from an earlier start; None if it does not.

        Raises UserError if the file of the ids is damaged.
        """
        return self._ids().get(tracker)

    def remember(self, tracker: str, identifier: str) -> None:
        """Keeps the id under which `tracker` knows the run, for later starts."""
        with _lock:
            known = {**self._ids(), tracker: identifier}
            atomic.write_text(self.directory / TRACKERS, json.dumps(known, indent=1) + "\n")

    def _ids(self) -> dict[str, str]:
        path = self.directory / TRACKERS
        if not path.exists():
            return {}
        return check_as(read_object(path, _REMEDY), dict[str, str], path, _REMEDY)


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Plain]]:
    """Yields settings as pairs of a dotted name and a plain value, such as ("optimizer.params.lr", 0.001).

    A list becomes its JSON text. Values that are None are left out.
    """
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, Plain):
            yield f"{prefix}{name}", value
        elif value is not None:
            yield f"{prefix}{name}", json.dumps(value, ensure_ascii=False)


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that others see.

    Left out are the blocks of trackers, which can hold account names, and the settings of another run.
    """
    deepspeed = {name: value for name, value in (settings.get("deepspeed") or {}).items() if name not in BLOCKS}
    own = {name: value for name, value in settings.items() if name != "pretraining"}
    return own | ({"deepspeed": deepspeed} if deepspeed else {})


def shown_flat(settings: Mapping[str, Any]) -> dict[str, Plain]:
    """`shown` as pairs of a dotted name and a plain value."""
    return dict(flat(shown(settings)))
