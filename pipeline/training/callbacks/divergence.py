"""Ends a run whose loss is no finite number, and finds spikes of the loss."""

import math
from typing import Any

import torch
from torch import Tensor

from common.text import quantity
from pipeline.engine import step as engine_step
from pipeline.training import rollback
from pipeline.training.callback import REMEDY, Callback, SpikeFound, TrainingFailed
from pipeline.training.callbacks.metrics_log import MetricsLog
from pipeline.training.meter import sum_over_ranks
from pipeline.training.spikes import Spike
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
        self._micro_batches = run.settings.engine.world_size * run.settings.engine.accumulation_steps
        self._loss = self._zero = torch.zeros((), dtype=torch.float64, device=run.engine.device)
        self._losses: list[Tensor] = []
        self._norms: list[Tensor | float | None] = []
        self._non_finite = 0

    def on_micro_step(self, tensors: dict[str, Tensor], output: Any, loss: Tensor) -> None:
        """Adds the loss of a micro-batch to the step."""
        self._loss = self._loss + loss.detach()

    def on_step(self, seconds: float) -> None:
        """Ends the step."""
        self._losses.append(self._loss)
        self._norms.append(engine_step.gradient_norm_on_device(self._run.engine))
        self._loss = self._zero

    def on_log(self, record: dict[str, Any]) -> None:
        """Judges the steps since the last call. Collective; waits for the device. Raises as `judge`."""
        self.judge()

    def on_trial(self, evaluation: Evaluation | None, fraction: float) -> None:
        """Raises TrainingFailed if the evaluation before the first step gave no finite number: something is broken."""
        if evaluation is not None and not math.isfinite(value := evaluation.metrics[evaluation.shown]):
            raise TrainingFailed(
                f"the held-out {evaluation.shown} is {value} after {self._run.state.step} steps; check the data, the "
                "checkpoint and the precision"
            )

    def on_save(self) -> str:
        """Judges the steps since the last call; names the checkpoint that a rollback needs. Raises as `judge`."""
        if not self.judge():
            return "the loss is infinite or no number"
        run = self._run
        if run.settings.on_divergence is not None:
            run.undo_step = rollback.first_step_undone(run.state.spikes.first_doubtful(run.state.step))
        return ""

    def judge(self) -> bool:
        """Whether the loss of the last step was finite on every rank; looks for a spike in the steps since the last
        call. Waits for the device; collective.

        Raises:
            TrainingFailed: the loss has been non-finite for too many consecutive steps, or the run must end at a spike.
            SpikeFound: the run should go back to a checkpoint before a spike.
        """
        run = self._run
        own = torch.stack(self._losses).tolist() if self._losses else []
        # Only rank 0 gives the norms, which are those of all ranks.
        own_norms = [0.0 if norm is None or not run.is_rank_0 else float(norm) for norm in self._norms]
        self._losses, self._norms = [], []
        for loss in own:
            self._non_finite = 0 if math.isfinite(loss) else self._non_finite + 1
        (ranks_now, ranks_too_long), losses, norms = sum_over_ranks(
            run.control, [self._non_finite > 0, self._non_finite >= NON_FINITE_STEPS], own, own_norms
        )
        if run.settings.on_divergence is not None:
            for step, (loss, norm) in enumerate(zip(losses, norms), run.state.step - len(losses) + 1):
                if (spike := run.state.spikes.add(step, loss / self._micro_batches, norm)) is not None:
                    self._answer(spike)
        if ranks_too_long:
            raise TrainingFailed(
                f"the loss has been infinite or no number for {NON_FINITE_STEPS} steps or more at step "
                f"{run.state.step}, on {ranks_too_long:.0f} of {run.control.world_size} ranks; {REMEDY}"
            )
        return not ranks_now

    def _answer(self, spike: Spike) -> None:
        """Does what --on-divergence says."""
        run, made = self._run, len(self._run.rollbacks)
        if run.settings.on_divergence == "warn":
            run.say(f"warning: {spike}")
            self._metrics_log.log(spike.last_step, spike._asdict(), "spike")
        elif run.settings.on_divergence == "stop":
            raise TrainingFailed(f"{spike}; go on with --on-divergence rollback, or {REMEDY}")
        elif made < run.settings.max_rollbacks:
            raise SpikeFound(spike)
        else:
            raise TrainingFailed(f"{spike}; the run has made {quantity(made, 'rollback')} (--max-rollbacks); {REMEDY}")
