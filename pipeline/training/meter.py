"""Sums of metrics over batches and ranks."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from common.errors import UserError
from pipeline.distributed.control import ControlGroup

COUNTS = ("tokens", "rows")
"""Fields of every task's sums: tokens without padding, and rows (samples of fine-tuning)."""


class Meter:
    """Adds up the sums of batches on the device. Only `totals` waits for the device.

    A batch with a sum that is not finite adds only its tokens and rows. `pipeline.training.divergence` counts
    the steps of such batches.

    Args:
        kind: NamedTuple class of the sums, scalar tensors or floats. It has the fields `COUNTS`.
    """

    def __init__(self, kind: type[Any], device: torch.device | str) -> None:
        self._kind = kind
        # float64: within a few hundred steps the number of predicted tokens passes 2**24, where fp32 stops counting.
        self._sums = torch.zeros(len(kind._fields), dtype=torch.float64, device=device)
        self._is_count = torch.tensor([name in COUNTS for name in kind._fields], device=device)
        self._loaded = self._zero = kind._make([0.0] * len(kind._fields))

    def add(self, sums: Sequence[torch.Tensor]) -> None:
        """Adds the sums of one batch, scalars () on the device in a NamedTuple of class `kind`."""
        values = torch.stack([value.detach().double() for value in sums])  # (number of fields,)
        finite = (values.isfinite() | self._is_count).all()
        self._sums += torch.where(finite | self._is_count, values, 0.0)

    def totals(self) -> Any:
        """The sums of this rank, floats in a NamedTuple of class `kind`. Waits for the device."""
        return self._kind._make(self._sums.tolist())

    def load(self, totals: Sequence[float]) -> None:
        """Continues from `totals` of an earlier start. Raises UserError if their number is not that of the sums."""
        if len(totals) != len(self._kind._fields):
            raise UserError(
                f"the checkpoint has {len(totals)} sums of metrics instead of {len(self._kind._fields)}; "
                "resume with the version that wrote it, or choose another --output"
            )
        self._sums.copy_(torch.tensor(totals, dtype=torch.float64))
        self._loaded = self._kind._make(totals)

    def of_this_start(self, totals: Any) -> tuple[float, float]:
        """The tokens and rows in `totals` that were not loaded: speeds divide by the time of this start alone."""
        return totals.tokens - self._loaded.tokens, totals.rows - self._loaded.rows

    def reset(self) -> None:
        """Sets all sums to 0."""
        self._sums.zero_()
        self._loaded = self._zero


def sum_over_ranks(control: ControlGroup, *vectors: Any) -> list[Any]:
    """Sums several vectors of floats over all ranks, in one collective.

    Returns:
        The summed vectors, in the order of the arguments. A NamedTuple is returned as a NamedTuple of its class.
    """
    return begin_sums(control, *vectors)()


def begin_sums(control: ControlGroup, *vectors: Any) -> Callable[[], list[Any]]:
    """Begins `sum_over_ranks` and does not wait. The function that it returns waits, and gives the summed vectors."""
    finish = control.begin_sum([value for vector in vectors for value in vector])

    def summed() -> list[Any]:
        totals = iter(finish())
        parts = [list(itertools.islice(totals, len(vector))) for vector in vectors]
        return [vector._make(part) if hasattr(vector, "_make") else part for vector, part in zip(vectors, parts)]

    return summed
