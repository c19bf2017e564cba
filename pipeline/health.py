"""When training has gone wrong: losses that are no numbers, and fp16 gradients that overflow."""

import torch
from torch import Tensor

NON_FINITE_STEPS = 10
"""Steps in a row with such a loss that end a run. One may be a batch that overflowed in fp16, which skips it."""

REMEDY = "lower the learning rate, lengthen the warm-up or use --precision bf16, and start again with another --output"


class TrainingFailed(RuntimeError):
    """Training cannot go on; the message says why and what to try."""


class LossWatch:
    """Counts on the device, without waiting for it, the steps in a row in which this rank's loss was no number."""

    def __init__(self, device: torch.device | str) -> None:
        self._steps = torch.zeros((), dtype=torch.int64, device=device)
        self._finite = torch.ones((), dtype=torch.bool, device=device)

    def add(self, loss: Tensor) -> None:
        """Takes in the loss () of one micro-batch."""
        self._finite = self._finite & loss.detach().isfinite()

    def end_step(self) -> None:
        """The micro-batches since the last call were one step."""
        self._steps = torch.where(self._finite, 0, self._steps + 1)
        self._finite = torch.ones_like(self._finite)

    def steps(self) -> int:
        """How many of the last steps, in a row up to now, had such a loss. Waits for the device."""
        return int(self._steps)


def explain_overflow(skipped: int, steps: int, loss_scale: float) -> str:
    """What is said when the first overflow is seen.

    Args:
        skipped: steps whose update was skipped, of `steps`.
        loss_scale: the present one.
    """
    return (
        f"fp16: gradients overflowed in {skipped} of {steps:,} steps; their updates were skipped and the loss scale "
        f"lowered, to {loss_scale:g} now. A few at the start and one now and then are how the scale is found "
        "(overflow_steps in metrics.jsonl counts them); if they go on, lower the learning rate or use --precision bf16"
    )
