"""Wall-clock time of a run, divided into training, waiting for data, and the rest."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Lap(NamedTuple):
    """The time since the previous lap.

    Attributes:
        seconds: without pauses.
        waiting: the part of `seconds` that was spent waiting for data.
    """

    seconds: float
    waiting: float


class Clock:
    """Measures a run. It starts when it is made.

    Args:
        before: seconds of earlier starts of the run.
    """

    def __init__(self, before: float = 0.0) -> None:
        now = time.perf_counter()
        self._zero = now - before
        self._lap_start = now
        self._paused = self._waiting = 0.0

    def seconds(self) -> float:
        """Seconds of all starts of the run, pauses included."""
        return time.perf_counter() - self._zero

    def lap(self) -> Lap:
        """Ends a lap and begins the next one."""
        now = time.perf_counter()
        lap = Lap(max(now - self._lap_start - self._paused, 1e-9), self._waiting)
        self._lap_start, self._paused, self._waiting = now, 0.0, 0.0
        return lap

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the time of the block (an evaluation, a save) out of the lap."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - start

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """Yields the items and counts the time until each one arrives as waiting."""
        iterator = iter(items)
        while True:
            start = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._waiting += time.perf_counter() - start
            yield item
