"""What all ranks agree on before a step, in one sum over the ranks on the host.

The sum of the next step is started before the update of the present one. Its time grows with the number of ranks
(docs/cluster.md), and passes while the device computes. A stop signal that arrives after the start ends training one
step later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.distributed import collective_times
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import StopSignals
from pipeline.training.deadline import Deadline
from pipeline.training.reporting.clock import Clock
from pipeline.training.reporting.metrics import begin_sums
from pipeline.training.reporting.stragglers import Stragglers
from pipeline.training.saves import RunSaves
from pipeline.training.training_task import TrainingTask


class Agreement(NamedTuple):
    """What all ranks agree on before a step.

    Attributes:
        stop_signal: the signal that ends training; None to continue.
        progress: of the run, 0 to 1, by the clock of rank 0; at 1 the next step is the last.
        label_counts: of the global batch, see `TrainingTask.label_counts`.
        busy_ranks: how many ranks write a checkpoint in the background.
    """

    stop_signal: int | None
    progress: float
    label_counts: Any
    busy_ranks: float


@dataclass
class Agreements:
    """Makes the agreement of one step after the other.

    Attributes:
        stragglers: learns how long each rank's own work took.
    """

    control: ControlGroup
    signals: StopSignals
    deadline: Deadline
    clock: Clock
    saves: RunSaves
    stragglers: Stragglers
    task: TrainingTask
    _finish: Callable[[], Agreement] | None = field(default=None, init=False)

    def start(self, step: int, micro_batches: Sequence[Any]) -> None:
        """Starts the agreement on the step after `step` steps, with this rank's micro-batches of it. Collective."""
        times = collective_times.of_this_process().end_step()
        progress = self.deadline.progress(step, self.clock.seconds())
        sums = begin_sums(
            self.control,
            self.signals.flags(),
            [progress if self.control.rank == 0 else 0.0, self.saves.is_busy],  # the ranks' clocks differ
            self.stragglers.own_work(times),
            self.task.label_counts(micro_batches),
        )

        def finish() -> Agreement:
            stops, (progress, busy_ranks), work, label_counts = sums()
            self.stragglers.add(work, times)
            return Agreement(self.signals.first(stops), progress, label_counts, busy_ranks)

        self._finish = finish

    def finish(self) -> Agreement:
        """The agreement that was started, once all ranks have started it. Collective."""
        assert self._finish is not None, "no agreement was started"
        finish, self._finish = self._finish, None
        return finish()
