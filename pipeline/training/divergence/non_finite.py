"""Losses that are not finite, and fp16 gradients that overflow."""

import torch
from torch import Tensor

from pipeline.distributed.exits import EXIT_FAILED

NON_FINITE_STEPS = 10
"""A run ends after this many consecutive steps with a non-finite loss. A single one may be an fp16 overflow, whose
update is skipped."""

REMEDY = "lower the learning rate, lengthen the warm-up or use --precision bf16, and start again with another --output"


class TrainingFailed(RuntimeError):
    """Training cannot continue. The message says why and what to try.

    Attributes:
        status: the exit status of the ranks.
    """

    status = EXIT_FAILED


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


def explain_overflow(precision: str, skipped: int, steps: int, loss_scale: float) -> str:
    """The message about the first step of a run whose gradients were not finite. In fp16 this is an overflow.

    Args:
        precision: "fp32", "bf16" or "fp16".
        skipped: steps whose update was skipped.
        steps: all steps so far.
        loss_scale: the present one.
    """
    if precision != "fp16":
        return (
            f"{precision}: gradients were infinite or no number in {skipped} of {steps:,} steps. Their updates were "
            "skipped (overflow_steps in metrics.jsonl counts them). If they continue, lower the learning rate or "
            "lengthen the warm-up"
        )
    return (
        f"fp16: gradients overflowed in {skipped} of {steps:,} steps. Their updates were skipped, and the loss scale "
        f"was lowered to {loss_scale:g}. Several overflows at the start and one now and then are normal: they find the "
        "loss scale (overflow_steps in metrics.jsonl counts them). If they continue, lower the learning rate or use "
        "--precision bf16"
    )
