"""Watches the steps of a run for spikes, without a wait for the device that would not be there anyway."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from common.progress import quantity
from pipeline.training.divergence import rollback
from pipeline.training.divergence.non_finite import REMEDY, TrainingFailed
from pipeline.training.divergence.rollback import SpikeFound
from pipeline.training.divergence.spikes import Spike, SpikeDetector, SpikeState
from pipeline.training.settings import RunSettings


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
