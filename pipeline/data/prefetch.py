"""Prefetching: makes batches ahead of time in a thread, and copies them to the device without waiting."""

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from pipeline.data.packed_rows import sequence_offsets

T = TypeVar("T")


def to_device(
    batch: Any, device: torch.device | str, with_offsets: bool = False, fixed_shapes: bool = False
) -> dict[str, Tensor]:
    """The fields of `batch`, a named tuple of arrays, as tensors on `device` by name. Fields that are None are left
    out. Copies to a GPU go through pinned memory and do not block.

    Args:
        with_offsets: adds `cu_seqlens`, for the attention kernel "flash": see `packed_rows.sequence_offsets`.
        fixed_shapes: as many offsets in every batch of the same size, for CUDA graphs. Each costs the kernel memory.
    """
    arrays = batch._asdict()
    if with_offsets:
        rows, pairs = batch.cls_positions.shape if fixed_shapes else (0, 0)
        # The padding of a row is a sequence, too.
        arrays["cu_seqlens"] = sequence_offsets(batch.sequence_ids, rows * (pairs + 1) or None)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array is not None}
    if torch.device(device).type == "cuda":
        return {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in tensors.items()}
    return tensors


def prefetch(items: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """Yields `items` in their order; a thread makes up to `depth` of them ahead.

    An exception in `items` is raised when the item that failed is asked for. Closing the iterator ends the thread.
    """
    ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(maxsize=depth)
    closed = threading.Event()

    def put(entry: tuple[bool, T | BaseException | None]) -> None:
        while not closed.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return
            except queue.Full:
                continue

    def produce() -> None:
        try:
            for item in items:
                put((True, item))
                if closed.is_set():
                    return
            put((False, None))
        except BaseException as error:
            put((False, error))

    threading.Thread(target=produce, name="batches", daemon=True).start()
    try:
        while True:
            more, item = ready.get()
            if more:
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                return
    finally:
        closed.set()
