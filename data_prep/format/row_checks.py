"""Checks the rows of one shard against the manifest: what `verify` and `stats` do beside comparing hashes."""

from pathlib import Path

import numpy as np

from common.errors import UserError
from data_prep.format import packing
from data_prep.format.columns import ShardColumns, map_shard
from data_prep.format.pairs import Parts
from data_prep.format.shards import ShardManifest


def read_checked(path: Path, rows: int, manifest: ShardManifest) -> ShardColumns:
    """Maps the shard `path` and checks each of its rows.

    Raises:
        UserError: see `map_shard`; or a row is longer than `max_seq_length`, holds an id that the vocabulary lacks,
            more pairs than the manifest says, another number of tokens than the parts of its pairs, or a document that
            does not exist. The message is one line without a remedy.
    """
    columns = map_shard(path, rows)
    parts = Parts(*(part.astype(np.int64) for part in columns.parts))  # (P,) each
    if len({len(columns.documents), *map(len, parts)}) > 1 or columns.pair_offsets[-1] != len(columns.documents):
        raise UserError(f"{path.name} has columns of different lengths")
    if columns.token_offsets[-1] != len(columns.tokens):
        raise UserError(f"{path.name} holds tokens that belong to no row")
    pairs = np.diff(columns.pair_offsets)  # (R,)
    if len(pairs) and not 1 <= pairs.min() <= pairs.max() <= manifest.counts.max_pairs_in_row:
        raise UserError(
            f"{path.name} has rows of {pairs.min()} to {pairs.max()} pairs, but the manifest says 1 to "
            f"{manifest.counts.max_pairs_in_row}"
        )
    tokens = _summed(parts.total(), columns.pair_offsets)  # (R,)
    if not np.array_equal(tokens, np.diff(columns.token_offsets)):
        raise UserError(f"{path.name} has a row whose parts do not add up to its tokens")
    used = _summed(packing.positions(parts), columns.pair_offsets)  # (R,)
    if used.max(initial=0) > manifest.max_seq_length:
        raise UserError(f"{path.name} has a row of {used.max()} positions, more than {manifest.max_seq_length}")
    if columns.tokens.max(initial=0) >= manifest.vocabulary_size:
        raise UserError(f"{path.name} holds a token that the vocabulary of {manifest.vocabulary_size} pieces lacks")
    if columns.documents.max(initial=0) >= max(1, manifest.counts.documents):
        raise UserError(f"{path.name} names a document beyond the {manifest.counts.documents} of the manifest")
    return columns


def _summed(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The sum of the values between each two neighbouring offsets."""
    ends = np.concatenate([[0], np.cumsum(values)])
    return np.diff(ends[offsets])
