"""The columns of one shard file, mapped into memory."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from common.errors import UserError, one_line

SCHEMA = pa.schema(
    [
        pa.field("tokens", pa.list_(pa.uint16()), nullable=False),
        pa.field("leads", pa.list_(pa.uint16()), nullable=False),
        pa.field("a_lengths", pa.list_(pa.uint16()), nullable=False),
        pa.field("b_lengths", pa.list_(pa.uint16()), nullable=False),
        pa.field("trails", pa.list_(pa.uint16()), nullable=False),
        pa.field("documents", pa.list_(pa.uint32()), nullable=False),
    ]
)


def _view(array: pa.Array) -> NDArray[Any]:
    """The numbers of an array without nulls, not copied. `array.to_numpy()` would import pandas, which takes long."""
    return np.from_dlpack(array)


class ShardColumns(NamedTuple):
    """One mapped shard: offsets and values of the list columns, as views of the file."""

    token_offsets: NDArray[np.int32]
    tokens: NDArray[np.uint16]
    pair_offsets: NDArray[np.int32]
    parts: tuple[NDArray[np.uint16], ...]
    documents: NDArray[np.uint32]


def map_shard(path: Path, rows: int) -> ShardColumns:
    """Maps one shard into memory. Pages are read when they are accessed; no file stays open.

    Args:
        path: of the shard.
        rows: its rows, as the manifest says.
    Raises:
        UserError: the file is not a shard, or its counts and offsets do not fit `rows`, its buffers or each other.
    """
    remedy = f"run `python -m data_prep verify {path.parent}`"
    try:
        # The arrays keep the mapping alive. The file is closed, because a set of thousands of shards would use up the
        # file descriptors.
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
            if reader.schema != SCHEMA:
                raise UserError(f"{path} has other columns than a shard; make the shards again")
            batch = reader.read_next_batch()
            batch.validate()
    except (pa.ArrowException, OSError, StopIteration, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} cannot be read as a shard ({one_line(error)}); {remedy}") from error
    tokens, *parts, documents = batch.columns
    if batch.num_rows != rows:
        raise UserError(f"{path} has {batch.num_rows} rows instead of {rows}; {remedy}")
    offsets = [_view(column.offsets) for column in batch.columns]
    if any(not np.array_equal(of_part, offsets[-1]) for of_part in offsets[1:-1]):
        raise UserError(f"{path} has columns of different lengths; {remedy}")
    for column, own in zip(batch.columns, offsets):
        nulls = column.null_count or column.values.null_count
        if nulls or own[0] != 0 or own[-1] > len(column.values) or (np.diff(own) < 0).any():
            raise UserError(f"{path} has offsets that lead out of the file; {remedy}")
    return ShardColumns(
        offsets[0],
        _view(tokens.values),
        offsets[-1],
        tuple(_view(part.values) for part in parts),
        _view(documents.values),
    )
