"""Prefetching: makes batches ahead of time in a thread, and copies them to the device without waiting."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from pipeline.data.packed_rows import sequence_offsets

T = TypeVar("T")


def to_device(batch: Any, device: torch.device | str) -> dict[str, Tensor]:
    """The fields of `batch`, a named tuple of arrays, as tensors on `device` by name. Fields that are None are left
    out. Copies to a GPU go through pinned memory and do not block. The caller pins a batch, a few MB, while the device
    computes the one before. A thread of its own would have the first GPU as its device, whichever is the rank's.

    `cu_seqlens` is added, for the attention kernel "flash": see `packed_rows.sequence_offsets`.
    """
    arrays = batch._asdict() | {"cu_seqlens": sequence_offsets(batch.sequence_ids)}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array is not None}
    if torch.device(device).type == "cuda":
        return {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in tensors.items()}
    return tensors


def prefetch(items: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """Yields `items` in their order; a thread makes up to `depth` of them ahead.

    An exception in `items` is raised when the item that failed is asked for. Closing the iterator ends the thread.
    """
    iterator, end = iter(items), object()
    thread = ThreadPoolExecutor(1, "batches")
    try:
        ready = deque(thread.submit(next, iterator, end) for _ in range(depth))
        while (item := ready.popleft().result()) is not end:
            ready.append(thread.submit(next, iterator, end))
            yield item  # type: ignore[misc]
    finally:
        thread.shutdown(wait=False, cancel_futures=True)
