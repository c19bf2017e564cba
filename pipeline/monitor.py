"""What is written of a run while it goes on: `metrics.jsonl` and TensorBoard events, by rank 0 alone."""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_prep import atomic

# Counts are for programs that read metrics.jsonl; as curves they would only be in the way.
_NO_CURVE = frozenset({"samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds"})


class Monitor:
    """Writes metrics to `RUN/metrics.jsonl` and `RUN/tensorboard/`. On other ranks than 0 it does nothing.

    A disk that is full does not end a run: records wait in memory until there is room, and curves have a gap.

    Args:
        run: the run's directory, which exists.
        step: the step that the run (re)starts from; records of later steps, written before it was killed, are
            dropped from both, for they will be written again.
        enabled: True on rank 0.
    """

    def __init__(self, run: Path, step: int, enabled: bool) -> None:
        self._enabled = enabled
        if not enabled:
            return
        path = run / "metrics.jsonl"
        if path.exists():
            atomic.write_text(path, keep_until(path.read_text(encoding="utf-8"), step))
        self._file = path.open("ab", buffering=0)
        self._unwritten = b""
        self._complained = False
        self._tensorboard = run / "tensorboard"
        self._writer: Any = None
        self._open_tensorboard(purge_step=step + 1)

    def log(self, step: int, metrics: Mapping[str, Any], split: str = "train") -> None:
        """Writes one record. Figures also become curves, `train/loss` and so on, over the steps.

        A mapping of figures by tensor becomes a histogram, and a curve for each tensor; a list of texts becomes one
        text. What is no number (a mean over nothing) is null in the record.
        """
        if not self._enabled:
            return
        record = json.dumps({"step": step, "split": split, **_plain(metrics)}, ensure_ascii=False, allow_nan=False)
        self._unwritten += record.encode() + b"\n"
        self._guarded(self._write_records)
        if not self._unwritten:  # else the disk is full, and events would end in the middle of one
            self._guarded(lambda: self._write_curves(step, metrics, split))

    def close(self) -> None:
        """Ends both files."""
        if self._enabled:
            self._guarded(self._write_records)
            if self._writer is not None:
                self._guarded(self._writer.close)
            self._file.close()

    def _open_tensorboard(self, purge_step: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        def make() -> None:
            self._writer = SummaryWriter(str(self._tensorboard), purge_step=purge_step, flush_secs=10)

        self._guarded(make)

    def _write_records(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]

    def _write_curves(self, step: int, metrics: Mapping[str, Any], split: str) -> None:
        if self._writer is None:
            self._open_tensorboard()
        if self._writer is None:
            return
        for name, value in metrics.items():
            tag = f"{split}/{name}"
            if isinstance(value, Mapping):
                self._write_by_tensor(step, name, value)
            elif isinstance(value, list):
                self._writer.add_text(tag, "\n\n".join(map(str, value)), step)
            elif isinstance(value, int | float) and math.isfinite(value) and name not in _NO_CURVE:
                self._writer.add_scalar(tag, value, step)

    def _write_by_tensor(self, step: int, name: str, values: Mapping[str, float]) -> None:
        import numpy as np

        finite = {tensor: value for tensor, value in values.items() if math.isfinite(value)}
        if finite:
            self._writer.add_histogram(name, np.array(list(finite.values())), step)
        for tensor, value in finite.items():
            self._writer.add_scalar(f"{name}/{tensor}", value, step)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Calls `work`; an I/O error is said once and passed over."""
        try:
            work()
        except OSError as error:
            if not self._complained:
                print(f"metrics cannot be written, training goes on: {error}", file=sys.stderr, flush=True)
            self._complained = True
            # An event file that may end in the middle of an event takes no more.
            writer, self._writer = self._writer, None
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.close()


def _plain(value: Any) -> Any:
    """The value as JSON has it: None for what is no number."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def keep_until(lines: str, step: int) -> str:
    """The records of a `metrics.jsonl` up to and including `step`; a last line that a kill cut short is dropped."""
    return "".join(line + "\n" for line, record in _whole(lines) if record["step"] <= step)


def _whole(lines: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line that is a whole record, and the record."""
    for line in lines.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            yield line, json.loads(line)


def read_records(run: Path, split: str) -> list[dict[str, Any]]:
    """The records of "train" or "eval" in a run's metrics, by step; none where there is no file."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8") if path.exists() else ""
    return [record for _, record in _whole(lines) if record["split"] == split]


def last_record(run: Path, split: str) -> dict[str, Any] | None:
    """The newest record of "train" or "eval" in a run's metrics, or None."""
    records = read_records(run, split)
    return records[-1] if records else None
