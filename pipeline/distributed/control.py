"""How the ranks agree: they succeed or fail together, and exchange small values on the host between steps.

`ControlGroup` is a gloo group beside the accelerator's group. Its collectives never wait for the device, and they
work without one.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from common.errors import UserError

T = TypeVar("T")


def all_or_raise(
    group: dist.ProcessGroup | None,
    work: Callable[[], T],
    errors: tuple[type[Exception], ...] = (UserError,),
    failure: Callable[[str], Exception] = UserError,
) -> T:
    """Calls `work` on every rank and returns its result. If it fails on one rank, this fails on all. Collective.

    Args:
        group: of the ranks; None for a rank alone.
        errors: what `work` may raise on one rank. Anything else is no agreement: it ends the job.
        failure: makes the exception that all ranks raise, of the message of the lowest rank that failed.
    """
    result, problem = None, ""
    try:
        result = work()
    except errors as error:
        problem = str(error) or type(error).__name__
    if first := next(filter(None, gather_all(group, problem)), ""):
        raise failure(first)
    return result  # type: ignore[return-value]


def gather_all(group: dist.ProcessGroup | None, value: T) -> list[T]:
    """The values of all ranks, by rank, on all ranks: whatever pickle writes. Collective."""
    if group is None:
        return [value]
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


class ControlGroup:
    """All ranks of the job, connected on the host. Every method is collective: all ranks call them in the same order.

    Attributes:
        rank, world_size: of this process in torch's default group, which must exist.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._group = dist.new_group(backend="gloo") if self.world_size > 1 else None

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

    def all_or_raise(self, work: Callable[[], T], *how: Any) -> T:
        """See the function of this name."""
        return all_or_raise(self._group, work, *how)

    def gather(self, value: T) -> list[T] | None:
        """The values of all ranks on rank 0, by rank; None on the other ranks. See `gather_all`."""
        values = gather_all(self._group, value)
        return values if self.rank == 0 else None

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on all ranks. See `gather_all`."""
        values = [value]
        if self._group is not None:
            dist.broadcast_object_list(values, src=0, group=self._group)
        return values[0]

    def barrier(self) -> None:
        """Waits until every rank has called it."""
        if self._group is not None:
            dist.barrier(group=self._group)
