"""What all ranks agree on: before a step, in one sum over the ranks on the host, and during an evaluation.

The sum of the next step is started before the update of the present one. Its time grows with the number of ranks
(docs/cluster.md), and passes while the device computes. A stop signal that arrives after the start ends training one
step later.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from common.progress_bar import Progress
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.training.callback import EvaluationLeft
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
        writers: ranks that are writing a checkpoint in the background.
        progress: by the time limit, 0 to 1, see `Deadline`.
    """

    stop_signal: int | None
    label_counts: Any
    writers: float
    progress: float


def start_agreement(
    control: ControlGroup, signals: StopSignals, label_counts: Any, is_writing: bool, progress: float
) -> Callable[[], Agreement]:
    """Starts the agreement on the next step, with what this rank knows. Collective.

    Args:
        progress: by rank 0's clock: those of the ranks differ.
    Returns:
        A function that waits until all ranks have started it. Collective.
    """
    mine = [is_writing, progress if control.rank == 0 else 0.0]
    finish = begin_sums(control, signals.flags(), label_counts, mine)

    def agreed() -> Agreement:
        stops, counts, (writers, progress_of_all) = finish()
        return Agreement(signals.first(stops), counts, writers, progress_of_all)

    return agreed


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
