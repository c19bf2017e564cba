"""Wall-clock time of a run, told apart: training, waiting for data, and everything else."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Lap(NamedTuple):
    """Seconds since the lap before, without pauses, and how many of them went on waiting for data."""

    seconds: float
    waiting: float


class Clock:
    """Measures a run from now on.

    Args:
        before: seconds that earlier starts of the run have spent.
    """

    def __init__(self, before: float = 0.0) -> None:
        now = time.perf_counter()
        self._zero = now - before
        self._lap_start = now
        self._paused = self._waiting = 0.0

    def seconds(self) -> float:
        """Seconds that the run has spent over all its starts, pauses included."""
        return time.perf_counter() - self._zero

    def lap(self) -> Lap:
        """Ends a lap and begins the next."""
        now = time.perf_counter()
        lap = Lap(max(now - self._lap_start - self._paused, 1e-9), self._waiting)
        self._lap_start, self._paused, self._waiting = now, 0.0, 0.0
        return lap

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside (evaluating, saving) belongs to no lap."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - start

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """The items; the time until each is there counts as waiting."""
        iterator = iter(items)
        while True:
            start = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._waiting += time.perf_counter() - start
            yield item
