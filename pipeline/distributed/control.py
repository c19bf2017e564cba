"""How the ranks agree: they succeed or fail together, and exchange small values on the host between steps.

`ControlGroup` is a gloo group beside the accelerator's group. Its collectives never wait for the device, and they
work without one. Values travel as JSON, never pickled: what arrives can be nothing but data.
"""

import base64
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
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


def gather_all(group: dist.ProcessGroup | None, value: T, kinds: Sequence[type] = ()) -> list[T]:
    """The values of all ranks, by rank, on all ranks. Collective.

    Args:
        value: as `encode` takes it.
        kinds: see `decode`.
    """
    if group is None:
        return [value]
    mine = torch.frombuffer(bytearray(encode(value)), dtype=torch.uint8)  # (bytes,)
    device = torch.device("cuda") if "nccl" in dist.get_backend(group) else torch.device("cpu")
    size = torch.tensor([len(mine)], device=device)
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    lengths = [int(one) for one in sizes]
    padded = torch.zeros(max(lengths), dtype=torch.uint8, device=device)  # (bytes of the longest value,)
    padded[: len(mine)] = mine
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded, group=group)
    return [decode(part[:length].cpu().numpy().tobytes(), kinds) for part, length in zip(parts, lengths)]


def encode(value: Any) -> bytes:
    """JSON of a value made of None, numbers, texts, lists, tuples, dicts, numpy arrays, dataclasses and NamedTuples."""
    return json.dumps(_packed(value)).encode()


def _packed(value: Any) -> Any:
    """The value as JSON has it. What JSON does not have is an object with one key, which says what it is."""
    if dataclasses.is_dataclass(value):
        fields = [_packed(getattr(value, field.name)) for field in dataclasses.fields(value)]
        return {"record": [type(value).__name__, *fields]}
    if isinstance(value, tuple):
        parts = [_packed(part) for part in value]
        return {"record": [type(value).__name__, *parts]} if hasattr(value, "_fields") else {"tuple": parts}
    if isinstance(value, dict):
        return {"dict": [[_packed(key), _packed(part)] for key, part in value.items()]}
    if isinstance(value, list):
        return [_packed(part) for part in value]
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": [value.dtype.str, value.shape, data]}
    return value


def decode(content: bytes, kinds: Sequence[type] = ()) -> Any:
    """The value that `encode` was given. `kinds` are the dataclasses and NamedTuples that may occur in it."""
    by_name = {kind.__name__: kind for kind in kinds}

    def unpack(packed: Any) -> Any:
        if isinstance(packed, list):
            return [unpack(part) for part in packed]
        if not isinstance(packed, dict):
            return packed
        ((form, parts),) = packed.items()
        if form == "tuple":
            return tuple(map(unpack, parts))
        if form == "dict":
            return {unpack(key): unpack(part) for key, part in parts}
        if form == "array":
            dtype, shape, data = parts
            return np.frombuffer(bytearray(base64.b64decode(data)), np.dtype(dtype)).reshape(shape)
        name, *values = parts
        kind = by_name[name]
        if not dataclasses.is_dataclass(kind):
            return kind(*map(unpack, values))
        names = [field.name for field in dataclasses.fields(kind)]  # its values may have to be given by name
        return kind(**dict(zip(names, map(unpack, values), strict=True)))

    return unpack(json.loads(content))


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

    def all_gather(self, values: Sequence[int]) -> list[list[int]]:
        """The whole numbers of each rank, by rank, on all ranks."""
        return gather_all(self._group, list(values))

    def all_or_raise(
        self,
        work: Callable[[], T],
        errors: tuple[type[Exception], ...] = (UserError,),
        failure: Callable[[str], Exception] = UserError,
    ) -> T:
        """See the function of this name."""
        return all_or_raise(self._group, work, errors, failure)

    def gather(self, value: T, kinds: Sequence[type] = ()) -> list[T] | None:
        """The values of all ranks on rank 0, by rank; None on the other ranks. See `gather_all`."""
        values = gather_all(self._group, value, kinds)
        return values if self.rank == 0 else None

    def broadcast(self, value: Any, kinds: Sequence[type] = ()) -> Any:
        """Rank 0's value, on all ranks. See `gather_all`."""
        return gather_all(self._group, value if self.rank == 0 else None, kinds)[0]

    def barrier(self) -> None:
        """Waits until every rank has called it."""
        if self._group is not None:
            dist.barrier(group=self._group)
