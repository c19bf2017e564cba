"""Calls a tracker in a thread, so that training never waits for a network."""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable

from common.errors import one_line
from pipeline.tracking.tracker import Figures, TrackedRun, Tracker

MAX_WAITING = 10_000
"""Records that wait for a tracker. Further ones are dropped; metrics.jsonl has them."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for a tracker."""

Opener = Callable[[TrackedRun], Tracker]


class BackgroundTracker:
    """Opens a tracker in a thread and passes it the figures. Prints its first error; training goes on.

    Args:
        name: of the tracker, for messages.
        open_tracker: opens it for `run`.
        close_seconds: how long `close` waits for it.
    """

    def __init__(self, name: str, open_tracker: Opener, run: TrackedRun, close_seconds: float = CLOSE_SECONDS) -> None:
        self._name, self._open, self._run, self._close_seconds = name, open_tracker, run, close_seconds
        self._waiting: queue.Queue[Figures | None] = queue.Queue(MAX_WAITING)
        self._finished = False
        self._complained = False
        # A daemon, so that a process whose tracker does not answer can end.
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, figures: Figures) -> None:
        """Takes the figures of one record and returns at once."""
        try:
            self._waiting.put_nowait(figures)
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
        try:
            tracker = self._open(self._run)
        except Exception as error:
            self._complain(_describe(error))
            while self._waiting.get() is not None:
                pass
            return
        while (figures := self._waiting.get()) is not None:
            try:
                tracker.log(figures)
            except Exception as error:
                self._complain(_describe(error))
        try:
            tracker.close(self._finished)
        except Exception as error:
            self._complain(_describe(error))

    def _complain(self, reason: str) -> None:
        if not self._complained:
            message = f"the tracker {self._name} failed, training goes on (metrics.jsonl has everything): {reason}"
            print(message, file=sys.stderr, flush=True)
        self._complained = True


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"


class Continued:
    """A tracker of a resumed run, which does not get again what an earlier start has sent."""

    def __init__(self, tracker: Tracker, run: TrackedRun) -> None:
        self._tracker, self._sent = tracker, run.sent

    def log(self, figures: Figures) -> None:
        """Takes the figures of one record."""
        if (figures.step, figures.split) not in self._sent:
            self._tracker.log(figures)

    def close(self, finished: bool) -> None:
        """Closes the tracker."""
        self._tracker.close(finished)
