"""A DeepSpeed JSON that has been checked and fitted to a number of ranks. Imports nothing that takes time."""

from dataclasses import dataclass
from typing import Any, Literal

from common.text import quantity

Precision = Literal["fp16", "bf16", "fp32"]


@dataclass(frozen=True)
class EngineConfig:
    """A checked DeepSpeed JSON for a known number of ranks."""

    # what `deepspeed.initialize` gets. Its `train_batch_size` includes the empty rows, as DeepSpeed demands.
    json: dict[str, Any]
    precision: Precision  # of the forward and backward pass
    train_batch_size: int  # rows in a step, over all ranks, without empty ones
    micro_batch_size: int  # rows in a micro-step of one rank; the last micro-batches of a step may hold fewer
    accumulation_steps: int  # micro-steps in a step, the same on all ranks
    world_size: int
    device: str  # name of the hardware, see `Hardware`
    optimizer: str
    learning_rate: float  # the peak
    notes: tuple[str, ...]  # what differs from the JSON and why, one line each

    @property
    def zero_stage(self) -> int:
        """0 to 3."""
        return int(self.json.get("zero_optimization", {}).get("stage", 0))

    @property
    def empty_rows(self) -> int:
        """Rows of a step that are padding, because the batch does not divide into the micro-batches."""
        return self.micro_batch_size * self.accumulation_steps * self.world_size - self.train_batch_size

    def decisive(self) -> dict[str, Any]:
        """What a resume must not change: the part that decides the results."""
        return {
            "train_batch_size": self.train_batch_size,
            **{name: self.json.get(name) for name in ("optimizer", "scheduler", "gradient_clipping")},
        }

    def describe_batch(self, noun: str, rank: str = "rank") -> str:
        """The batch and its division, for people."""
        division = (
            f"{self.micro_batch_size} x {self.accumulation_steps} accumulated x {quantity(self.world_size, rank)}"
        )
        if not self.empty_rows:
            return f"{self.train_batch_size} {noun} = {division}"
        share = self.empty_rows / (self.empty_rows + self.train_batch_size)
        empty = f"{self.empty_rows} empty ({100 * share:.1f} % of the computation)"
        return f"{self.train_batch_size} {noun} = {division} - {empty}"
