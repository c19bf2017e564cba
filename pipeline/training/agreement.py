"""What all ranks agree on: before a step, in one sum over the ranks on the host, and during an evaluation.

The sum of the next step is started before the update of the present one. Its time grows with the number of ranks
(docs/cluster.md), and passes while the device computes. A stop signal that arrives after the start ends training one
step later.
"""

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
AGREE_BATCHES = 8
"""Batches of an evaluation from one agreement to the next."""


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
    """The `Pace` of a run: progress on rank 0, and an end on all ranks soon after one has received a stop signal.

    Args:
        beat: called before each batch.
    """

    def __init__(self, control: ControlGroup, signals: StopSignals, beat: Callable[[], None] = lambda: None) -> None:
        self._control, self._signals, self._beat = control, signals, beat

    def __call__(self, batches: Iterable[T], count: int) -> Iterator[T]:
        """Yields the batches. Before every eighth one the ranks agree whether to go on. Collective.

        Raises:
            EvaluationLeft: a rank has received a stop signal.
        """
        is_rank_0 = self._control.rank == 0
        with Progress("evaluation", count, "batches", enabled=is_rank_0, quiet_seconds=QUIET_SECONDS) as bar:
            for number, batch in enumerate(batches):
                if number % AGREE_BATCHES == 0:
                    stop_signal = self._signals.first(self._control.sum(self._signals.flags()))
                    if stop_signal is not None:
                        raise EvaluationLeft(stop_signal)
                self._beat()
                yield batch
                bar.update()
