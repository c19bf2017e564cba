"""Ends a run whose loss is no finite number."""

import math

import torch
from torch import Tensor

from pipeline.training.callback import REMEDY, TrainingFailed
from pipeline.training.training_run import TrainingRun
from pipeline.training.training_task import Evaluation

NON_FINITE_STEPS = 10
"""A run ends after this many consecutive steps with a non-finite loss. A single one may be an fp16 overflow, whose
update is skipped."""


class Divergence:
    """Keeps the loss of each step on the device, and judges it at logged lines and saves.

    There the host reads from the device anyway. Weights whose last loss is not finite are not saved.
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

        Raises:
            TrainingFailed: the loss has been non-finite for too many consecutive steps.
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
        raise TrainingFailed(
            f"the held-out {evaluation.shown} is {value} after {step} steps; check the data, the checkpoint and the "
            "precision"
        )
