"""How the ranks agree: they succeed or fail together, and exchange small values on the host between steps.

`ControlGroup` is a gloo group beside the accelerator's group. Its collectives never wait for a device, and need none.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from common.errors import UserError

T = TypeVar("T")

_Errors = tuple[type[Exception], ...]
_Failure = Callable[[str], Exception]
MAX_WAIT = timedelta(days=1)
"""Limit of a wait on the host: longer than reading all shards from a slow disk. The watch acts long before."""


def attempt(work: Callable[[], T], errors: _Errors) -> tuple[T | None, str]:
    """Calls `work` and returns its result, or the message of one of `errors`; "" if there was none."""
    try:
        return work(), ""
    except errors as error:
        return None, str(error) or type(error).__name__


class ControlGroup:
    """All ranks of the job, connected on the host. Every method is collective: all ranks call them in the same order.

    rank, world_size: of this process in torch's default group, which must exist.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=MAX_WAIT) if self.world_size > 1 else None

    def sum(self, values: Sequence[float]) -> list[float]:
        """The element-wise sums over the ranks, in float64."""
        return self.begin_sum(values)()

    def begin_sum(self, values: Sequence[float]) -> Callable[[], list[float]]:
        """Begins the `sum` of `values` and does not wait. The function that it returns waits, and gives the sums."""
        total = torch.tensor(values, dtype=torch.float64)
        work = None if self._group is None else dist.all_reduce(total, group=self._group, async_op=True)

        def finish() -> list[float]:
            if work is not None:
                work.wait()
            return total.tolist()

        return finish

    def all_or_raise(self, work: Callable[[], T], errors: _Errors = (UserError,), failure: _Failure = UserError) -> T:
        """Calls `work` on every rank and returns its result. If it fails on one rank, this fails on all.

        Args:
            errors: what `work` may raise on one rank. Anything else is no agreement: it ends the job.
            failure: makes the exception that all ranks raise, of the message of the lowest rank that failed.
        """
        result, problem = attempt(work, errors)
        if first := self.broadcast(next(filter(None, self.gather(problem) or []), "")):
            raise failure(first)
        return result  # type: ignore[return-value]

    def on_rank_0(self, work: Callable[[], T], errors: _Errors = (UserError,), failure: _Failure = UserError) -> T:
        """Calls `work` on rank 0 and returns its result on all ranks. If it fails, all fail, see `all_or_raise`."""
        result, problem = self.broadcast(attempt(work, errors) if self.rank == 0 else None)
        if problem:
            raise failure(problem)
        return result

    def gather(self, value: T) -> list[T] | None:
        """The values of all ranks on rank 0, by rank: whatever pickle writes; None on the other ranks."""
        if self._group is None:
            return [value]
        values: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        dist.gather_object(value, values, group=self._group)
        return values

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on all ranks: whatever pickle writes."""
        values = [value]
        if self._group is not None:
            dist.broadcast_object_list(values, src=0, group=self._group)
        return values[0]

    def barrier(self) -> None:
        """Waits until every rank has called it."""
        if self._group is not None:
            dist.barrier(group=self._group)
