"""Shows the progress of an evaluation, and ends it early on all ranks when a stop signal arrives on any of them."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from common.progress import Progress
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.distributed.hangs import progress

T = TypeVar("T")

QUIET_SECONDS = 10.0
"""An evaluation that takes less shows nothing."""
_AGREE_SECONDS = 1.0
_MAX_BATCHES = 64  # between two agreements: a GPU computes long after the host has prepared a batch


class EvaluationLeft(Exception):
    """A stop signal ended an evaluation early; raised on all ranks together.

    Attributes:
        stop_signal: its number.
    """

    def __init__(self, stop_signal: int) -> None:
        super().__init__(f"signal {stop_signal}")
        self.stop_signal = stop_signal


class Pace(Protocol):
    """What an evaluation passes its batches through."""

    def __call__(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """The `batches`, `count` of them. All ranks must have the same number."""
        ...


def at_once(batches: Iterable[T], count: int) -> Iterator[T]:
    """A `Pace` that only yields the batches."""
    return iter(batches)


class EvaluationPace:
    """The `Pace` of a run: progress on rank 0, and an end as soon as a rank has received a stop signal.

    Args:
        clock: seconds, for tests.
    """

    def __init__(
        self, control: ControlGroup, signals: StopSignals, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._control, self._signals, self._clock = control, signals, clock

    def __call__(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """Yields the batches. The ranks agree about once a second whether to go on. Collective.

        Raises:
            EvaluationLeft: a rank has received a stop signal.
        """
        own, is_rank_0 = progress.of_this_process(), self._control.rank == 0
        began, due = self._clock(), 0
        with Progress("evaluation", count, "batches", enabled=is_rank_0, quiet_seconds=QUIET_SECONDS) as bar:
            for number, batch in enumerate(batches):
                if number == due:
                    due += self._agree((self._clock() - began) / number if number else None)
                own.beat()
                yield batch
                bar.update()

    def _agree(self, seconds_a_batch: float | None) -> int:
        """The batches until the next agreement, by the clock of rank 0."""
        ahead = 1.0
        if seconds_a_batch is not None:
            ahead = min(max(1.0, _AGREE_SECONDS // max(seconds_a_batch, 1e-9)), _MAX_BATCHES)
        *stops, ahead = self._control.sum([*self._signals.flags(), ahead if self._control.rank == 0 else 0.0])
        if (stop_signal := self._signals.first(stops)) is not None:
            raise EvaluationLeft(stop_signal)
        return int(ahead)
