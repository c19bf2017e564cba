"""The trackers that --track and the DeepSpeed JSON turn on. Each has a thread: training never waits for a network."""

import contextlib
import importlib.util
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from common.errors import UserError, one_line
from pipeline.tracking.comet_runs import CometRun
from pipeline.tracking.csv_files import CsvFiles
from pipeline.tracking.mlflow_runs import MlflowRun
from pipeline.tracking.tensorboard import FurtherTensorBoardFiles
from pipeline.tracking.tracker import JsonBlock, Scalars, Service, TrackedRun, Tracker
from pipeline.tracking.wandb_runs import WandbRun

SERVICES: dict[str, type[Service]] = {
    "csv": CsvFiles,
    "mlflow": MlflowRun,
    "wandb": WandbRun,
    "comet": CometRun,
    "tensorboard": FurtherTensorBoardFiles,
}
TRACK_CHOICES = tuple(name for name in SERVICES if name != "tensorboard")
"""The values of --track. RUN/tensorboard is always written."""
MAX_WAITING = 10_000
"""Records that wait for a tracker. Further ones are dropped; metrics.jsonl has them."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for a tracker."""


def wanted(track: Sequence[str], deepspeed: Mapping[str, Any]) -> dict[str, JsonBlock]:
    """The trackers that are turned on, by name, with their blocks.

    Args:
        track: the values of --track.
        deepspeed: the DeepSpeed JSON.
    """
    found: dict[str, JsonBlock] = {}
    for name, service in SERVICES.items():
        block = deepspeed.get(service.block) or {}
        if name == "tensorboard" and not block.get("output_path"):
            continue  # RUN/tensorboard has it already
        if name in track or block.get("enabled"):
            found[name] = block
    return found


def check(track: Sequence[str], deepspeed: Mapping[str, Any]) -> None:
    """Raises UserError if a package of a tracker is missing on the host of rank 0, which alone tracks."""
    if os.environ.get("RANK", "0") != "0":
        return
    for name in wanted(track, deepspeed):
        package = SERVICES[name].package
        if package and importlib.util.find_spec(package) is None:
            asked = f"--track {name}" if name in track else f"the block {SERVICES[name].block} of the DeepSpeed JSON"
            raise UserError(f"{asked} needs the package {package}: `pip install {package}`, or leave it out")


def open_all(track: Sequence[str], deepspeed: Mapping[str, Any], run: TrackedRun) -> list[Tracker]:
    """Opens the trackers that are turned on. Called on rank 0."""
    return [
        BackgroundTracker(name, partial(open_service, name, block), run)
        for name, block in wanted(track, deepspeed).items()
    ]


def open_service(name: str, block: JsonBlock, run: TrackedRun) -> tuple[Tracker, frozenset[tuple[int, str]]]:
    """Opens a tracker. Returns it with step and split of the records that it has got from an earlier start."""
    service = SERVICES[name]
    sent = run.sent if service.keeps_records and run.id_of(name) is not None else frozenset()
    return service(run, block), sent


class BackgroundTracker(Tracker):
    """Opens a tracker in a thread and passes it the scalars. Prints its first error; training goes on.

    Args:
        name: of the tracker, for messages.
        open_tracker: opens it for `run`; see `open_service`.
        close_seconds: how long `close` waits for it.
    """

    def __init__(
        self,
        name: str,
        open_tracker: Callable[[TrackedRun], tuple[Tracker, frozenset[tuple[int, str]]]],
        run: TrackedRun,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._name, self._open, self._run, self._close_seconds = name, open_tracker, run, close_seconds
        self._waiting: queue.Queue[Scalars | None] = queue.Queue(MAX_WAITING)
        self._finished = False
        self._complained = False
        # A daemon, so that a process whose tracker does not answer can end.
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, scalars: Scalars) -> None:
        """Takes the scalars of one record and returns at once."""
        try:
            self._waiting.put_nowait(scalars)
        except queue.Full:
            self._complain(f"{MAX_WAITING:,} records wait for it")

    def close(self, finished: bool) -> None:
        """Waits until the tracker has taken everything, but no longer than `close_seconds`."""
        self._finished = finished
        deadline = time.monotonic() + self._close_seconds
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=self._close_seconds)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._complain(f"it did not take its last records within {self._close_seconds:g} s")

    def _work(self) -> None:
        tracker: Tracker | None = None
        sent: frozenset[tuple[int, str]] = frozenset()
        with self._complaining():
            tracker, sent = self._open(self._run)
        while (scalars := self._waiting.get()) is not None:
            if tracker is not None and (scalars.step, scalars.split) not in sent:
                with self._complaining():
                    tracker.log(scalars)
        if tracker is not None:
            with self._complaining():
                tracker.close(self._finished)

    @contextlib.contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._complain(f"{type(error).__name__}: {one_line(error)}")

    def _complain(self, reason: str) -> None:
        if not self._complained:
            message = f"the tracker {self._name} failed, training goes on (metrics.jsonl has everything): {reason}"
            print(message, file=sys.stderr, flush=True)
        self._complained = True
