"""The metrics of a run: `metrics.jsonl`, TensorBoard and trackers, written by rank 0."""

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from common.files.json_files import check_as, parse_object, read_bytes
from pipeline.checkpoint.run_records import MetricsRecord
from pipeline.tracking.curves import Curves
from pipeline.tracking.tensorboard import TensorBoardFiles
from pipeline.tracking.tracker import Scalars, TrackedRun, Tracker

METRICS = "metrics.jsonl"
MAX_METRICS_BYTES = 4 << 30
_REMEDY = "restore it, or move it away"

OpenTrackers = Callable[[TrackedRun], Sequence[Tracker]]


class MetricsLog:
    """Writes metrics to `RUN/metrics.jsonl`, `RUN/tensorboard/` and trackers. On ranks other than 0 it does nothing.

    A full disk does not end the run: records wait in memory until there is space, and curves have a gap.

    Args:
        run: the run's directory, which exists.
        step: the step at which the run starts or resumes. Records of later steps are dropped: a run that was killed
            wrote them, and the resumed run will write them again.
        enabled: True on rank 0.
        settings: the content of settings.json; TensorBoard shows it.
        on_gpu: whether the run trains on a GPU.
        all_curves: True gives TensorBoard every number of a record, and not only those that make a useful chart.
        open_trackers: opens the trackers that get the same curves as TensorBoard. It is called on rank 0.
        evaluation_due: whether the run evaluates after `step` once more. An earlier record of it is dropped.
    """

    def __init__(
        self,
        run: Path,
        step: int,
        enabled: bool,
        settings: Mapping[str, Any] | None = None,
        on_gpu: bool = False,
        all_curves: bool = False,
        open_trackers: OpenTrackers | None = None,
        evaluation_due: bool = False,
    ) -> None:
        self._enabled = enabled
        if not enabled:
            return
        path = run / METRICS
        before = _read(run).decode(errors="replace") if os.path.lexists(path) else ""
        kept = keep_until(before, step, evaluation_due)
        sent = _steps_of(before) - _steps_of(kept)
        atomic.write_text(path, kept)  # which also makes the name of a new file survive a power loss
        self._run = TrackedRun(run, step, settings or {}, on_gpu, sent)
        self._curves = Curves(self._run, all_curves)
        self._file = path.open("ab", buffering=0)
        self._unwritten = b""
        self._complained = False
        self._tensorboard: TensorBoardFiles | None = None
        self._guarded(lambda: self._open_tensorboard(purge=True))
        self._trackers = [] if open_trackers is None else open_trackers(self._run)

    def log(self, step: int, metrics: Mapping[str, Any], split: str = "train", recorded: bool = True) -> None:
        """Writes one record to metrics.jsonl, and its curves, such as `train/loss`, to TensorBoard and the trackers.

        In TensorBoard, a mapping from tensor names to numbers also becomes a histogram, and a list of strings, rows of
        a Markdown table, a text. A number that is not finite (a mean over nothing) is null in the record.

        Args:
            recorded: False writes the curves only.
        """
        if not self._enabled:
            return
        if recorded:
            record = {"step": step, "split": split, **_plain(metrics)}
            self._unwritten += json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
            self._guarded(self._write_records)
        scalars = self._curves.make_scalars(step, split, metrics)
        if not self._unwritten:  # otherwise the disk is full and would cut an event short
            self._guarded(lambda: self._write_curves(scalars, metrics))
        for tracker in self._trackers:
            tracker.log(scalars)

    def sync(self) -> None:
        """Makes the records so far survive a power loss, except those that wait for space. Any thread may call it.

        It comes before a checkpoint is published: a run that resumes from there does not write these records again.

        Raises:
            OSError: I/O error.
        """
        if self._enabled:
            os.fsync(self._file.fileno())

    def close(self, finished: bool = False) -> None:
        """Closes the files and the trackers.

        Args:
            finished: whether the run has ended. Otherwise it may be resumed.
        """
        if self._enabled:
            self._guarded(self._write_records)
            if self._tensorboard is not None:
                tensorboard = self._tensorboard
                self._guarded(lambda: tensorboard.close(finished))
            self._file.close()
            for tracker in self._trackers:
                tracker.close(finished)

    def _open_tensorboard(self, purge: bool) -> None:
        self._tensorboard = TensorBoardFiles(self._run.directory / "tensorboard", self._run, purge=purge)

    def _write_records(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]

    def _write_curves(self, scalars: Scalars, metrics: Mapping[str, Any]) -> None:
        if self._tensorboard is None:
            self._open_tensorboard(purge=False)
        if self._tensorboard is None or not (scalars.values or metrics):
            return
        self._tensorboard.log(scalars)
        for name, value in metrics.items():
            if isinstance(value, Mapping):
                if finite := [number for number in value.values() if math.isfinite(number)]:
                    self._tensorboard.histogram(name, finite, scalars.step)
            elif isinstance(value, list):
                self._tensorboard.text(f"{scalars.split}/{name}", "\n".join(map(str, value)), scalars.step)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Calls `work`. Prints the first I/O error; training continues after any of them."""
        try:
            work()
        except OSError as error:
            if not self._complained:
                print(f"metrics cannot be written, training goes on: {error}", file=sys.stderr, flush=True)
            self._complained = True
            # The event file may end in the middle of an event. Further events need a new file.
            tensorboard, self._tensorboard = self._tensorboard, None
            if tensorboard is not None:
                with contextlib.suppress(OSError):
                    tensorboard.close(finished=False)


def _plain(value: Any) -> Any:
    """The value for JSON: None in place of a number that is not finite."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def drop_after(run: Path, step: int) -> None:
    """Drops the records of later steps than `step`. No `MetricsLog` of the run may be open.

    Raises UserError for a line that is JSON but no record.
    """
    if os.path.lexists(run / METRICS):
        atomic.write_text(run / METRICS, keep_until(_read(run).decode(errors="replace"), step))


def keep_until(lines: str, step: int, evaluation_due: bool = False) -> str:
    """The records of a `metrics.jsonl` up to and including `step`, without a last line that a kill cut short.

    If an evaluation is due after `step`, its record is not among them.

    Raises UserError for a line that is JSON but no record.
    """
    kept = [
        line
        for line, record in _complete_records(lines.encode(), METRICS)
        if record["step"] <= step and not (evaluation_due and (record["step"], record["split"]) == (step, "eval"))
    ]
    return b"".join(line + b"\n" for line in kept).decode()


def _steps_of(lines: str) -> frozenset[tuple[int, str]]:
    """Step and split of the records of a `metrics.jsonl`."""
    return frozenset((record["step"], record["split"]) for _, record in _complete_records(lines.encode(), METRICS))


def _complete_records(lines: bytes, source: Path | str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each line of `source` that is complete JSON, with the record. Raises UserError for one that is no record."""
    for number, line in enumerate(lines.split(b"\n"), 1):
        try:
            record = parse_object(line, source, _REMEDY)
        except UserError:  # a kill or a full disk cut it short
            continue
        step = record.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or not isinstance(record.get("split"), str):
            raise UserError(f"{source}, line {number}, has no step or no split; {_REMEDY}")
        yield line, record


def _read(run: Path) -> bytes:
    return read_bytes(run / METRICS, _REMEDY, MAX_METRICS_BYTES)


def read_records(run: Path, split: str) -> list[dict[str, Any]]:
    """The records of `split` ("train" or "eval") in a run's metrics.jsonl, by step; none without a file.

    Raises UserError for a file that cannot be read, or a record of `split` that does not fit `MetricsRecord`.
    """
    path = run / METRICS
    if not os.path.lexists(path):
        return []
    found = [record for _, record in _complete_records(_read(run), path) if record["split"] == split]
    check_as(found, list[MetricsRecord], path, _REMEDY, extra="ignore")
    return found


def last_record(run: Path, split: str) -> dict[str, Any] | None:
    """The newest record of `split` ("train" or "eval") in a run's metrics.jsonl, or None."""
    records = read_records(run, split)
    return records[-1] if records else None
