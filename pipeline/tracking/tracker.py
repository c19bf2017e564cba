"""The interface of a tracker, what it knows of its run, and which numbers of a record become curves."""

import json
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from common.files import atomic
from common.files.json_files import check_as, read_object

TRACKERS = "trackers.json"
"""In the run's directory: for each tracker the id under which it knows the run."""
BLOCKS = ("tensorboard", "wandb", "csv_monitor", "comet")
"""The keys of a DeepSpeed JSON for DeepSpeed's own monitors. DeepSpeed itself does not get them."""

_lock = threading.Lock()
"""The trackers of a run open in threads of their own, and keep their ids in one file."""

_REMEDY = "restore it, or move it away: the trackers then begin anew"
_COUNTS = frozenset({"step", "samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds", "epochs"})
_SHOWN = {
    "train": {
        *("loss", "mlm_loss", "mlm_accuracy", "learning_rate", "grad_norm", "loss_scale", "overflow_steps"),
        *("batches_passed_over", "tokens_per_second", "peak_share", "data_wait_share"),
        "peak_memory_gb",
    },
    "eval": {"mlm_loss", "mlm_accuracy", "mlm_accuracy_low", "mlm_accuracy_high"},
}
"""Curves of pre-training, by split. The accuracies of the trained sentence task are added."""

Plain = int | float | str | bool


@dataclass(frozen=True)
class Scalars:
    """The scalars of one record, for curves.

    Attributes:
        step: of the run.
        split: "train" or "eval".
        values: finite numbers by tag, such as "train/loss".
        consumed: "tokens", without padding, and "epochs" up to the last training record, if they are known.
    """

    step: int
    split: str
    values: dict[str, float]
    consumed: dict[str, float] = field(default_factory=dict)


class Tracker(Protocol):
    """Sends the scalars of a run to a service or a file. An exception is printed; training goes on."""

    def log(self, scalars: Scalars) -> None:
        """Takes the scalars of one record."""

    def close(self, finished: bool) -> None:
        """Sends what still waits. Nothing comes after this call.

        Args:
            finished: whether the run has ended. Otherwise it may be resumed.
        """


class Curves:
    """Makes the scalars of records in the order of training.

    Of pre-training, `_SHOWN` becomes curves: what says something about training and changes. metrics.jsonl has
    every number.

    Args:
        objective: "sop", "nsp" or "mlm"; None for fine-tuning.
        everything: keeps every number, and the trust ratio of every tensor.
    """

    def __init__(self, objective: str | None, everything: bool = False) -> None:
        self._objective, self._everything = objective, everything
        self._consumed: dict[str, float] = {}

    def make_scalars(self, step: int, split: str, metrics: Mapping[str, Any]) -> Scalars:
        """The scalars of one record of metrics.jsonl."""
        values = {
            f"{split}/{name}": float(value)
            for name, value in metrics.items()
            if _is_number(value) and self._shows(split, name)
        }
        ratios = metrics.get("trust_ratios") or {}
        if finite := {name: value for name, value in ratios.items() if _is_number(value)}:
            values |= {"train/trust_ratio_min": min(finite.values()), "train/trust_ratio_max": max(finite.values())}
        if self._everything:
            values |= {f"trust_ratios/{name}": value for name, value in finite.items()}
        if split == "train":
            self._consumed = {name: metrics[name] for name in ("tokens", "epochs") if name in metrics}
        return Scalars(step, split, values, self._consumed if step else {"tokens": 0, "epochs": 0.0})

    def _shows(self, split: str, name: str) -> bool:
        if split not in _SHOWN or self._everything or self._objective is None:
            return split in _SHOWN and name not in _COUNTS
        corpus, _, base = name.rpartition("/")
        if corpus:
            return base in ("mlm_loss", "mlm_accuracy")
        return name in _SHOWN[split] or name.startswith(f"{self._objective}_accuracy")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it.

    Attributes:
        directory: of the run, which exists.
        step: at which the run starts or resumes.
        settings: the content of settings.json.
    """

    directory: Path
    step: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's name: that of its directory; for one of several seeds with the name of the directory above."""
        place = self.directory.resolve()
        return f"{place.parent.name}-{place.name}" if place.name.startswith("seed-") else place.name

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


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that others see.

    Left out are the blocks of trackers, which can hold account names, and the settings of another run.
    """
    deepspeed = {name: value for name, value in (settings.get("deepspeed") or {}).items() if name not in BLOCKS}
    own = {name: value for name, value in settings.items() if name != "pretraining"}
    return own | ({"deepspeed": deepspeed} if deepspeed else {})


def shown_flat(settings: Mapping[str, Any]) -> dict[str, Plain]:
    """`shown` as pairs of a dotted name and a plain value, such as ("optimizer.params.lr", 0.001).

    A list becomes its JSON text. Values that are None are left out.
    """
    return dict(_flat(shown(settings), ""))


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Plain]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Plain):
            yield f"{prefix}{name}", value
        elif value is not None:
            yield f"{prefix}{name}", json.dumps(value, ensure_ascii=False)
