"""Writes the metrics of a run: `metrics.jsonl`, TensorBoard and trackers, on rank 0."""

import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pipeline.checkpoint.saver import Saved
from pipeline.training.callback import Callback
from pipeline.training.metrics_file import METRICS, drop_after
from pipeline.training.tracking import services
from pipeline.training.tracking.curves import curves_of
from pipeline.training.tracking.tensorboard import open_writer
from pipeline.training.training_run import TrainingRun
from pipeline.training.training_task import Evaluation


class MetricsLog(Callback):
    """Writes a record for each logged line, evaluation and save.

    Records of later steps than the state's are dropped first: a run that was killed wrote them, and this start will
    write them again. A full disk does not end the run: records wait in memory until there is space, and curves have a
    gap. On ranks other than 0 it does nothing.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._enabled = run, run.is_rank_0
        if not self._enabled:
            return
        settings, state = run.settings, run.state
        drop_after(settings.flags.output, state.step, state.evaluation_due is not None)
        self._recorded = dataclasses.asdict(settings.record())
        self._file = (settings.flags.output / METRICS).open("ab", buffering=0)
        self._unwritten = b""
        self._complained = False
        self._tensorboard: Any = None
        self._guarded(lambda: self._open_tensorboard(purge=True))
        self._consumed: dict[str, float] = {}
        names = services.wanted(settings.flags.track, settings.engine.json)
        self._trackers = [services.BackgroundTracker(name, settings.flags.output, self._recorded) for name in names]

    def on_log(self, record: Mapping[str, Any], is_last: bool) -> None:
        """Writes the record of the present step."""
        self.log(self._run.state.step, record)

    def on_trial(self, evaluation: Evaluation, fraction: float) -> None:
        """Gives the curves of a new run their first point, which is none of metrics.jsonl."""
        if self._run.state.step == 0 and self._enabled:
            self._log_curves(0, evaluation.metrics, "eval")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Writes the record of an evaluation."""
        step = self._run.state.step
        samples = step * self._run.settings.engine.train_batch_size
        self.log(step, evaluation.metrics | {"samples": samples}, "eval")

    def on_checkpoint(self, checkpoint: Saved) -> None:
        """Writes what a save has cost."""
        seconds = {"checkpoint_seconds": checkpoint.seconds, "blocked_seconds": checkpoint.blocked_seconds}
        self.log(checkpoint.step, seconds, "save")

    def on_end(self) -> None:
        """Closes the files and the trackers."""
        if self._enabled:
            self._guarded(self._write_records)
            if self._tensorboard is not None:
                self._guarded(self._tensorboard.close)
            self._file.close()
            for tracker in self._trackers:
                tracker.close(self._run.state.finished)

    def log(self, step: int, metrics: Mapping[str, Any], split: str = "train") -> None:
        """Writes one record to metrics.jsonl, and its curves, such as `train/loss`, to TensorBoard and the trackers.

        A number that is not finite (a mean over nothing) is null in the record.
        """
        if self._enabled:
            record = {"step": step, "split": split, **_plain(metrics)}
            self._unwritten += json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
            self._guarded(self._write_records)
            self._log_curves(step, metrics, split)

    def sync(self) -> None:
        """Makes the records so far survive a power loss, except those that wait for space. Any thread may call it.

        It comes before a checkpoint is published: a run that resumes from there does not write these records again.

        Raises:
            OSError: I/O error.
        """
        if self._enabled:
            os.fsync(self._file.fileno())

    def _open_tensorboard(self, purge: bool) -> None:
        run = self._run
        self._tensorboard = open_writer(run.settings.flags.output, run.state.step, self._recorded, purge)

    def _write_records(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]

    def _log_curves(self, step: int, metrics: Mapping[str, Any], split: str) -> None:
        values = curves_of(split, metrics, self._recorded.get("objective"), self._run.settings.flags.all_curves)
        if not self._unwritten:  # otherwise the disk is full and would cut an event short
            self._guarded(lambda: self._write_curves(step, values))
        if split == "train":  # an evaluation has the axes of the training before it
            self._consumed = {name: metrics[name] for name in ("tokens", "epochs") if name in metrics}
        for tracker in self._trackers:
            tracker.log(step, values | self._consumed)

    def _write_curves(self, step: int, values: Mapping[str, float]) -> None:
        if self._tensorboard is None:
            self._open_tensorboard(purge=False)
        for tag, value in values.items():
            self._tensorboard.add_scalar(tag, value, step)

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
                    tensorboard.close()


def _plain(value: Any) -> Any:
    """The value for JSON: None in place of a number that is not finite."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
