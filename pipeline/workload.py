"""What a `Trainer` trains on: the batches, their loss and its figures. Pre-training is one, fine-tuning another."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Evaluation(NamedTuple):
    """What an evaluation found.

    Attributes:
        figures: for metrics.jsonl and TensorBoard.
        score: higher is better; the best checkpoint is kept by it.
        shown: the name of the figure that stands in the line of an evaluation.
    """

    figures: dict[str, Any]
    score: float
    shown: str


class Workload(Protocol):
    """Batches are named tuples of numpy arrays, whose fields are the arguments of the model.

    Attributes:
        name: stands on the progress bar.
        sums_count: how many `sums` there are.
        evaluates: whether there is anything to evaluate on.
    """

    @property
    def name(self) -> str: ...
    @property
    def sums_count(self) -> int: ...
    @property
    def evaluates(self) -> bool: ...

    def steps(self, first: int) -> Iterator[list[Any]]:
        """The micro-batches of this rank in each step, from step `first` to the last of the run."""
        ...

    def counts(self, micro_batches: Sequence[Any]) -> list[float]:
        """How many labels of each kind there are: what the loss's means are over, once summed over all ranks."""
        ...

    def loss(self, output: Any, counts: Sequence[float], shares: int) -> Tensor:
        """The part of one micro-batch in the mean loss of the global batch.

        The means are over all labels of the global batch (`counts`), so that how the batch is cut into ranks and
        micro-steps does not matter. DeepSpeed averages gradients over the `shares` = ranks x micro-steps; multiplying
        by their number turns its mean back into a sum.
        """
        ...

    def sums(self, output: Any, tensors: dict[str, Tensor]) -> list[Tensor]:
        """Scalars on the device that add up over batches, always as many; the last two: tokens, and rows (examples)."""
        ...

    def summarise(self, totals: Sequence[float]) -> dict[str, Any]:
        """The figures of added-up `sums`; "loss" is one of them."""
        ...

    def progress(self, samples: int) -> dict[str, Any]:
        """Further figures of a run that has consumed `samples`; {} where there are none."""
        ...

    def try_evaluation(self, engine: Any) -> tuple[Evaluation | None, float]:
        """Evaluates a little before the first step of a start, so that a broken evaluation is found at once.

        Returns:
            What it found, None where a part says nothing, and the share of a whole evaluation that it was.
        """
        ...

    def evaluate(self, engine: Any, last: bool) -> Evaluation:
        """Evaluates over all ranks, after the run's `last` step on everything. The engine is training afterwards."""
        ...
