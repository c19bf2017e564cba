"""What ends a run early: a stop signal, the time limit, a loss that is no finite number, or ranks with other weights.

What all ranks must know before a step is summed over them on the host, in one collective. The sum of the next step is
started before the update of the present one. Its time grows with the number of ranks (docs/plan.md), and passes
while the device computes. A stop signal that arrives after the start ends training one step later.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.checkpoint.checkpoint_manifest import BYTES_A_PARAMETER
from pipeline.distributed.exits import EXIT_LOST, StopSignals
from pipeline.engine.engine_state import Engine, differing_ranks, parameter_count, weights_checksum
from pipeline.training.step_metrics import begin_sums
from pipeline.training.training_run import REMEDY, Evaluation, TrainingFailed, TrainingRun
from pipeline.training.training_task import TrainingTask

MARGIN = 1.25  # measured times are multiplied by this factor and reserved
SLOWEST_SAVE = 100e6  # assumed speed of a save in bytes a second, until one has been measured
NON_FINITE_STEPS = 10
"""A run ends after this many consecutive steps with a non-finite loss. A single one may be a skipped fp16 overflow."""


class Agreement(NamedTuple):
    """What all ranks agree on before a step."""

    stop_signal: int | None  # the signal that ends training; None to continue
    label_counts: Any  # of the global batch, see `TrainingTask.label_counts`
    writers: float  # ranks that are writing a checkpoint in the background
    progress: float  # by the time limit, 0 to 1, see `Deadline`


class NextStep:
    """This rank's micro-batches of the next step, and the agreement of all ranks on it, which begins with them."""

    def __init__(
        self,
        run: TrainingRun,
        task: TrainingTask,
        signals: StopSignals,
        deadline: "Deadline",
        micro_batches: Iterator[Sequence[Any]],
    ) -> None:
        self._run, self._task, self._signals, self._deadline = run, task, signals, deadline
        self._micro_batches = micro_batches
        self._begun: tuple[Sequence[Any], Callable[[], list[Any]]] | None = None

    def begin(self, step: int, is_writing: bool) -> None:
        """Waits for the micro-batches of the step after `step` steps and starts the agreement, once. Collective."""
        run = self._run
        if self._begun is None:
            run.enter("data")
            micro_batches = next(self._micro_batches)
            run.enter("agreement")
            progress = self._deadline.progress(step, run.clock.seconds())
            counts = self._task.label_counts(micro_batches)
            mine = [is_writing, progress if run.is_rank_0 else 0.0]  # by rank 0's clock: those of the ranks differ
            self._begun = micro_batches, begin_sums(run.control, self._signals.flags(), counts, mine)

    def take(self) -> tuple[Sequence[Any], Agreement]:
        """The micro-batches of the step that was begun, and what the ranks agree on. Collective."""
        assert self._begun is not None, "no step was begun"
        (micro_batches, finish), self._begun = self._begun, None
        self._run.enter("agreement")
        stops, counts, (writers, progress) = finish()
        return micro_batches, Agreement(self._signals.first(stops), counts, writers, progress)


def expected_save_seconds(engine: Engine) -> float:
    """How long a save may take, until one has been measured."""
    return BYTES_A_PARAMETER * parameter_count(engine) / SLOWEST_SAVE


class Deadline:
    """How far a run is by --max-hours, so that the schedule, the last evaluation and the last save are within them.

    The time of a run is the wall-clock time of all its starts up to their last checkpoints. The hours of training are
    the limit minus a reserve: 1.25 times the longest step, evaluation and save so far, measured anew at each start.
    These count twice, once for the end of the run and once for what happens before the clock is read again; a step once
    more, because the clock is read before the end of the step before; an export as much as a save.
    What compiles is not measured.

    Args:
        hours: the limit; None for none, and then the progress stays 0.
        first: step that the run begins at, which is that of the branch. The hours are for the steps from there on.
    """

    def __init__(self, hours: float | None, steps: int, save_seconds: float, first: int = 0) -> None:
        self._limit, self._steps, self._first = None if hours is None else 3600.0 * hours, steps, first
        self._longest = {"save": save_seconds, "evaluation": 0.0, "step": 0.0}
        self._progress = 0.0

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self._limit is not None

    @property
    def reserve(self) -> float:
        """Seconds reserved for what comes after the last step has begun."""
        return MARGIN * (2 * sum(self._longest.values()) + self._longest["save"] + self._longest["step"])

    def learn(self, work: str, seconds: float) -> None:
        """Learns how long a "step", an "evaluation" or a "save" has taken."""
        self._longest[work] = max(self._longest[work], seconds)

    def progress(self, step: int, seconds: float) -> float:
        """The progress after `step` steps and `seconds` of the run: of the steps or of the hours, if these are further.

        From 0 to 1; it never decreases. At 1 the next step is the last.
        """
        if self._limit is None:
            return 0.0
        left = self._limit - self.reserve
        own = seconds / left if left > 0 else 1.0
        by_time = (self._first + own * (self._steps - self._first)) / self._steps
        self._progress = min(1.0, max(self._progress, step / self._steps, by_time))
        return self._progress


class Divergence:
    """Keeps the loss of each step on the device, and judges it where the host reads from the device anyway.

    Weights whose last loss is not finite are not saved.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._loss = self._zero = torch.zeros((), device=run.engine.device)
        self._losses: list[Tensor] = []
        self._non_finite = 0

    def add(self, loss: Tensor) -> None:
        """Adds the loss () of a micro-batch to the step."""
        self._loss = self._loss + loss.detach()

    def end_step(self) -> None:
        """Ends the step."""
        self._losses.append(self._loss)
        self._loss = self._zero

    def judge(self) -> bool:
        """Whether the loss of the last step was finite on every rank. Waits for the device; collective.

        Raises TrainingFailed: the loss has been non-finite for too many consecutive steps.
        """
        run = self._run
        for loss in torch.stack(self._losses).tolist() if self._losses else []:
            self._non_finite = 0 if math.isfinite(loss) else self._non_finite + 1
        self._losses = []
        ranks_now, ranks_too_long = run.control.sum([self._non_finite > 0, self._non_finite >= NON_FINITE_STEPS])
        if ranks_too_long:
            raise TrainingFailed(
                f"the loss has been infinite or no number for {NON_FINITE_STEPS} steps or more at step "
                f"{run.state.step}, on {ranks_too_long:.0f} of {run.control.world_size} ranks; {REMEDY}"
            )
        return not ranks_now


def check_trial(evaluation: Evaluation, step: int) -> None:
    """Raises TrainingFailed if the evaluation before the first step gave no finite number: something is broken."""
    if not math.isfinite(value := evaluation.metrics[evaluation.shown]):
        fault = f"the held-out {evaluation.shown} is {value} after {step} steps"
        raise TrainingFailed(f"{fault}; check the data, the checkpoint and the precision")


def check_equal_weights(run: TrainingRun) -> None:
    """Raises TrainingFailed on all ranks if the weights that all of them hold are not equal. Collective."""
    line, checksums = "", run.control.gather(weights_checksum(run.engine))
    if checksums is not None and (ranks := differing_ranks(checksums)):
        line = (
            f"{' or '.join(f'rank {rank} on host {run.hosts[rank]}' for rank in ranks)} holds wrong weights after step "
            f"{run.state.step}: an error of memory, of a link or of a computation that nothing else reported. They are "
            "not saved; the same command goes on from the last checkpoint, better without that host "
            "(docs/reliability.md)"
        )
    if line := run.control.broadcast(line):
        raise TrainingFailed(line, EXIT_LOST)
