"""Ends a run whose loss is no finite number, and finds spikes of the loss."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from common.text import quantity
from pipeline.engine import step as engine_step
from pipeline.training import rollback
from pipeline.training.callback import Callback
from pipeline.training.failures import REMEDY, SpikeFound, TrainingFailed
from pipeline.training.meter import sum_over_ranks
from pipeline.training.metrics_log import MetricsLog
from pipeline.training.run_settings import RunSettings
from pipeline.training.spikes import Spike, SpikeDetector, SpikeState
from pipeline.training.state import TrainingRun
from pipeline.training.training_task import Evaluation

NON_FINITE_STEPS = 10
"""A run ends after this many consecutive steps with a non-finite loss. A single one may be an fp16 overflow, whose
update is skipped."""


class Divergence(Callback):
    """Keeps the loss and the gradient norm of each step on the device, and judges them at logged lines and saves.

    There the host reads from the device anyway. Weights whose last loss is not finite are not saved.
    """

    def __init__(self, run: TrainingRun, metrics_log: MetricsLog) -> None:
        self._run, self._metrics_log = run, metrics_log
        self._non_finite = NonFiniteLossCounter(run.engine.device)
        self.spikes = SpikeWatch(run.settings, run.engine.device, run.state.spikes, len(run.rollbacks))

    def batch(self, tensors: dict[str, Tensor], output: Any, loss: Tensor) -> None:
        """Adds the loss of a micro-batch to the step."""
        self._non_finite.add(loss)
        self.spikes.add(loss)

    def step(self, seconds: float) -> None:
        """Ends the step."""
        self._non_finite.end_step()
        self.spikes.end_step(engine_step.gradient_norm_on_device(self._run.engine))

    def log(self, record: dict[str, Any]) -> None:
        """Judges the steps since the last call. Collective; waits for the device. Raises as `judge`."""
        self.judge()

    def tried_evaluation(self, evaluation: Evaluation | None, fraction: float) -> None:
        """Raises TrainingFailed if the evaluation before the first step gave no finite number: something is broken."""
        if evaluation is None:
            return
        value = evaluation.metrics[evaluation.shown]
        if not math.isfinite(value):
            raise TrainingFailed(
                f"the held-out {evaluation.shown} is {value} after {self._run.state.step} steps; check the data, the "
                "checkpoint and the precision"
            )

    def before_save(self) -> str:
        """Judges the steps since the last call; names the checkpoint that a rollback needs. Raises as `judge`."""
        if not self.judge():
            return "the loss is infinite or no number"
        self._run.state.spikes = self.spikes.state
        self._run.undo_step = self.spikes.undo_step(self._run.state.step)
        return ""

    def judge(self) -> bool:
        """Whether the loss of the last step was finite on every rank; looks for a spike in the steps since the last
        call. Waits for the device; collective.

        Raises:
            TrainingFailed: the loss has been non-finite for too many consecutive steps, or the run must end at a spike.
            SpikeFound: the run should go back to a checkpoint before a spike.
        """
        run = self._run
        steps = self._non_finite.consecutive_steps()
        (ranks_now, ranks_too_long), losses, norms = sum_over_ranks(
            run.control, [steps > 0, steps >= NON_FINITE_STEPS], *self.spikes.take(run.is_rank_0)
        )
        for spike in self.spikes.judge(run.state.step, losses, norms):
            run.say(f"warning: {spike}")
            self._metrics_log.log(spike.last_step, spike._asdict(), "spike")
        if ranks_too_long:
            raise TrainingFailed(
                f"the loss has been infinite or no number for {NON_FINITE_STEPS} steps or more at step "
                f"{run.state.step}, on {ranks_too_long:.0f} of {run.control.world_size} ranks; {REMEDY}"
            )
        return not ranks_now


class NonFiniteLossCounter:
    """Counts the consecutive steps in which this rank's loss was not finite. It counts on the device without waiting.

    Call `add` for each micro-batch and `end_step` after each step.
    """

    def __init__(self, device: torch.device | str) -> None:
        self._steps = torch.zeros((), dtype=torch.int64, device=device)
        self._finite = torch.ones((), dtype=torch.bool, device=device)

    def add(self, loss: Tensor) -> None:
        """Adds the loss () of one micro-batch to the present step."""
        self._finite = self._finite & loss.detach().isfinite()

    def end_step(self) -> None:
        """Ends the present step."""
        self._steps = torch.where(self._finite, 0, self._steps + 1)
        self._finite = torch.ones_like(self._finite)

    def consecutive_steps(self) -> int:
        """The number of consecutive steps, up to the last one, with a non-finite loss. Waits for the device."""
        return int(self._steps)


class SpikeWatch:
    """Keeps the loss and the gradient norm of each step on the device, and judges them when the host reads them.

    Call `add` for each micro-batch and `end_step` after each step. If the settings look for no spikes, it does nothing.

    Args:
        state: of the detector.
        rollbacks: how many the run has made.
    """

    def __init__(self, settings: RunSettings, device: torch.device | str, state: SpikeState, rollbacks: int) -> None:
        self._policy, self._most, self._made = settings.on_divergence, settings.max_rollbacks, rollbacks
        self._micro_batches = settings.engine.world_size * settings.engine.accumulation_steps
        self._detector = SpikeDetector(state)
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        self._loss = self._zero
        self._losses: list[Tensor] = []
        self._norms: list[Tensor | float | None] = []

    @property
    def state(self) -> SpikeState:
        """What the detector remembers."""
        return self._detector.state

    def add(self, loss: Tensor) -> None:
        """Adds the loss () of one micro-batch to the present step."""
        if self._policy is not None:
            self._loss = self._loss + loss.detach()

    def end_step(self, norm: Tensor | float | None) -> None:
        """Ends the present step, whose gradients have this norm, () or a number; None if it is not known."""
        if self._policy is not None:
            self._losses.append(self._loss)
            self._norms.append(norm)
            self._loss = self._zero

    def take(self, is_rank_0: bool) -> tuple[list[float], list[float]]:
        """The losses and the gradient norms of the steps since the last call, to be summed over the ranks.

        Only rank 0 gives the norms, which are those of all ranks. Waits for the device.
        """
        losses = torch.stack(self._losses).tolist() if self._losses else []
        norms = [0.0 if norm is None or not is_rank_0 else float(norm) for norm in self._norms]
        self._losses, self._norms = [], []
        return losses, norms

    def judge(self, last_step: int, losses: Sequence[float], norms: Sequence[float]) -> Iterator[Spike]:
        """Yields the spikes of which the run should only warn.

        Args:
            last_step: the number of the last step.
            losses, norms: as `take` returns them, summed over the ranks.
        Raises:
            SpikeFound: the run should go back to a checkpoint before a spike.
            TrainingFailed: the run should end.
        """
        for step, (loss, norm) in enumerate(zip(losses, norms), last_step - len(losses) + 1):
            spike = self._detector.add(step, loss / self._micro_batches, norm)
            if spike is None:
                continue
            if self._policy == "warn":
                yield spike
            elif self._policy == "stop":
                raise TrainingFailed(f"{spike}; go on with --on-divergence rollback, or {REMEDY}")
            elif self._made < self._most:
                raise SpikeFound(spike)
            else:
                raise TrainingFailed(
                    f"{spike}; the run has made {quantity(self._made, 'rollback')} (--max-rollbacks); {REMEDY}"
                )

    def undo_step(self, step: int) -> int | None:
        """A checkpoint of at most so many steps must be kept once `step` steps are judged; None if none has to be."""
        if self._policy is None:
            return None
        return rollback.first_step_undone(self._detector.first_doubtful(step))
