"""Notes every collective that this process enters, whoever calls it: the project or DeepSpeed.

Every collective of torch.distributed passes a method of the class ProcessGroup, and every wait for one passes
Work.wait. These are wrapped once. The number of collectives tells which rank has not come
(`pipeline.distributed.hangs`), the time in them which rank comes last (`pipeline.distributed.collective_times`).
"""

import functools
import time
from collections.abc import Callable
from typing import Any

from pipeline.distributed import collective_times
from pipeline.distributed.hangs import progress

METHODS = (
    *("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    *("allgather", "allgather_coalesced", "_allgather_base", "all_gather_single", "all_gather_single_coalesced"),
    *("allgather_into_tensor_coalesced", "alltoall", "alltoall_base", "all_to_all_single"),
    *("broadcast", "gather", "scatter", "barrier", "monitored_barrier"),
)
"""Methods of ProcessGroup that all ranks of a group call together. `send` and `recv` are not among them."""


def note() -> None:
    """Notes every later collective of this process."""
    from torch.distributed import ProcessGroup, Work

    if hasattr(ProcessGroup.allreduce, "__wrapped__"):
        return
    for name in METHODS:
        if (method := getattr(ProcessGroup, name, None)) is not None:
            setattr(ProcessGroup, name, _noted(method))
    Work.wait = _timed(Work.wait)  # type: ignore[method-assign]


def _noted(method: Callable[..., Any]) -> Callable[..., Any]:
    own, times = progress.of_this_process(), collective_times.of_this_process()

    @functools.wraps(method)
    def noted(group: Any, *arguments: Any, **options: Any) -> Any:
        own.enter_collective()
        event = times.entered(on_device=_is_on_device(arguments))
        began = time.perf_counter()
        work = method(group, *arguments, **options)
        times.spent(time.perf_counter() - began)
        times.started(work, event)
        return work

    return noted


def _timed(method: Callable[..., Any]) -> Callable[..., Any]:
    times = collective_times.of_this_process()

    @functools.wraps(method)
    def timed(work: Any, *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        result = method(work, *arguments, **options)
        times.spent(time.perf_counter() - began)
        times.left(work)
        return result

    return timed


def _is_on_device(arguments: tuple[Any, ...]) -> bool:
    """Whether the first tensor of a collective is on an accelerator."""
    first: Any = arguments
    while isinstance(first, list | tuple) and first:
        first = first[0]
    return bool(getattr(first, "is_cuda", False))
