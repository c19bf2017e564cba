"""What all ranks agree on: before a step, in one sum over the ranks on the host, and during an evaluation.

The sum of the next step is started before the update of the present one. Its time grows with the number of ranks
(docs/cluster.md), and passes while the device computes. A stop signal that arrives after the start ends training one
step later.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from common.progress import Progress
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.training.callback import Callback, EvaluationLeft
from pipeline.training.meter import begin_sums

T = TypeVar("T")

QUIET_SECONDS = 10.0
"""An evaluation that takes less time shows no progress."""
_AGREE_SECONDS = 1.0
_MAX_BATCHES = 64  # between two agreements: a GPU computes long after the host has prepared a batch


class Agreement(NamedTuple):
    """What all ranks agree on before a step.

    Attributes:
        stop_signal: the signal that ends training; None to continue.
        label_counts: of the global batch, see `TrainingTask.label_counts`.
    """

    stop_signal: int | None
    label_counts: Any


class Agreements:
    """Makes the agreement of each step, with the numbers that the callbacks add to it (`Callback.on_vote`)."""

    def __init__(self, control: ControlGroup, signals: StopSignals, callbacks: Sequence[Callback]) -> None:
        self._control, self._signals, self._callbacks = control, signals, callbacks
        self._finish: Callable[[], list[Any]] | None = None

    def start(self, step: int, label_counts: Any) -> None:
        """Starts the agreement on the step after `step` steps, with this rank's label counts of it. Collective."""
        votes = [callback.on_vote(step) for callback in self._callbacks]
        self._finish = begin_sums(self._control, self._signals.flags(), label_counts, *votes)

    def finish(self) -> Agreement:
        """The agreement that was started, once all ranks have started it. Tells the callbacks. Collective."""
        assert self._finish is not None, "no agreement was started"
        finish, self._finish = self._finish, None
        stops, label_counts, *sums = finish()
        for callback, own in zip(self._callbacks, sums, strict=True):
            callback.on_agreement(own)
        return Agreement(self._signals.first(stops), label_counts)

    def pace(self, beat: Callable[[], None]) -> "EvaluationPace":
        """Makes the `Pace` of an evaluation, so that a stop signal ends the evaluation on all ranks."""
        return EvaluationPace(self._control, self._signals, beat)


class EvaluationPace:
    """The `Pace` of a run: progress on rank 0, and an end on all ranks as soon as one has received a stop signal.

    Args:
        beat: called before each batch.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        control: ControlGroup,
        signals: StopSignals,
        beat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._control, self._signals, self._beat, self._clock = control, signals, beat, clock

    def __call__(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """Yields the batches. The ranks agree about once a second whether to go on. Collective.

        Raises:
            EvaluationLeft: a rank has received a stop signal.
        """
        is_rank_0 = self._control.rank == 0
        began, due = self._clock(), 0
        with Progress("evaluation", count, "batches", enabled=is_rank_0, quiet_seconds=QUIET_SECONDS) as bar:
            for number, batch in enumerate(batches):
                if number == due:
                    due += self._agree((self._clock() - began) / number if number else None)
                self._beat()
                yield batch
                bar.update()

    def _agree(self, seconds_a_batch: float | None) -> int:
        """Ends the evaluation after a stop signal. Returns the batches until the next agreement, by rank 0's clock."""
        ahead = 1.0
        if seconds_a_batch is not None:
            ahead = min(max(1.0, _AGREE_SECONDS // max(seconds_a_batch, 1e-9)), _MAX_BATCHES)
        *stops, ahead = self._control.sum([*self._signals.flags(), ahead if self._control.rank == 0 else 0.0])
        if (stop_signal := self._signals.first(stops)) is not None:
            raise EvaluationLeft(stop_signal)
        return int(ahead)
