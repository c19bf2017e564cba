"""Packed rows: several sequences [CLS] A [SEP] B [SEP] one after another in a row, with padding at its end.

The sequences of a row do not see each other: positions start again at each [CLS], and `sequence_ids` tell them apart.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import CLS_ID, PAD_ID, SEP_ID

Tokens = NDArray[np.integer]  # token ids, (n,)


class PackedRows(NamedTuple):
    """The encoder's input: B rows of S positions, int64. See `model.AlbertModel.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S) 0 in [CLS] A [SEP] and on padding, 1 in B [SEP]
    position_ids: NDArray[np.int64]  # (B, S) from 0 at each [CLS]
    sequence_ids: NDArray[np.int64]  # (B, S) number of the sequence in its row, -1 on padding


def blank_rows(rows: int, length: int) -> PackedRows:
    """Rows of padding, (rows, length)."""
    return PackedRows(
        input_ids=np.full((rows, length), PAD_ID, dtype=np.int64),
        token_type_ids=np.zeros((rows, length), dtype=np.int64),
        position_ids=np.zeros((rows, length), dtype=np.int64),
        sequence_ids=np.full((rows, length), -1, dtype=np.int64),
    )


def sequence_length(first: Tokens, second: Tokens | None) -> int:
    """Tokens of a sequence, [CLS] and [SEP] included."""
    return len(first) + 2 if second is None else len(first) + len(second) + 3


class PlacedSequences(NamedTuple):
    """Where N sequences stand in B rows of S positions: F tokens in all, special ones included, row after row."""

    row: NDArray[np.int64]  # (N,) the sequence's row
    number: NDArray[np.int64]  # (N,) of the sequence in its row
    start: NDArray[np.int64]  # (N,) position of its [CLS] in the row
    lengths: NDArray[np.int64]  # (N,) its tokens
    positions: NDArray[np.int64]  # (F,) each token's index among the B x S positions, ascending
    segments: NDArray[np.int64]  # (F,) number of the token's segment, ascending; -1 on [CLS] and [SEP]


def place_sequences(
    rows: PackedRows, per_row: NDArray[np.int64], tokens: Tokens, first: NDArray[np.int64], second: NDArray[np.int64]
) -> PlacedSequences:
    """Writes sequences into blank rows, each [CLS] first [SEP] second [SEP], or [CLS] first [SEP] without a second.

    Args:
        rows: of `blank_rows`, B of them.
        per_row: (B,) the number of sequences in each row, which stand in it one after another.
        tokens: (T,) the text of all sequences, first and second of each.
        first: (N,) tokens of each first text.
        second: (N,) tokens of each second text, -1 where there is none.
    """
    row = np.repeat(np.arange(len(per_row)), per_row)  # (N,)
    first_of_row = (np.cumsum(per_row) - per_row)[row]  # (N,) number of the row's first sequence
    number = np.arange(len(first)) - first_of_row
    lengths = first + second + 3  # (N,)
    ends = np.cumsum(lengths)
    begins = ends - lengths  # (N,) where each sequence begins among the F tokens
    middles = begins + first + 1  # (N,) the first [SEP]
    start = begins - begins[first_of_row]

    # (2 N,) the two halves of each sequence, [CLS] first [SEP] and second [SEP]; the latter is empty without a second
    halves = np.stack([first + 2, second + 1], axis=1).reshape(-1)
    count = int(lengths.sum())
    in_second = np.repeat(np.tile(np.array([0, 1]), len(first)), halves)  # (F,)
    within = np.arange(count) - np.repeat(begins, lengths)  # (F,) position from [CLS]
    segments = np.repeat(np.arange(2 * len(first)), halves)  # (F,)
    segments[begins] = segments[middles] = segments[ends - 1] = -1
    ids = np.full(count, SEP_ID, dtype=np.int64)
    ids[segments >= 0] = tokens
    ids[begins] = CLS_ID

    positions = np.repeat(row * rows.input_ids.shape[1] + start, lengths) + within  # (F,)
    for field, values in (
        (rows.input_ids, ids),
        (rows.token_type_ids, in_second),
        (rows.position_ids, within),
        (rows.sequence_ids, np.repeat(number, lengths)),
    ):
        field.reshape(-1)[positions] = values
    return PlacedSequences(row, number, start, lengths, positions, segments)


def offset_count(sequences: int) -> int:
    """The number of sequences that offsets are padded to: at least `sequences`, at most 1.25 times as many.

    There are four such numbers from each power of two to the next. The batches of a run have few of them, and each is
    one shape of a compiled graph.
    """
    step = 1 << max(0, sequences.bit_length() - 3)
    return -(-sequences // step) * step


def sequence_offsets(sequence_ids: NDArray[np.int64]) -> NDArray[np.int32]:
    """Where each sequence begins if all rows are joined end to end; the padding of a row is a sequence, too.

    Args:
        sequence_ids: (B, S), see `PackedRows`.
    Returns:
        (N + 1,) ascending from 0, filled up with B * S; N is an `offset_count`.
    """
    begins = np.ones(sequence_ids.shape, dtype=np.bool_)  # (B, S)
    np.not_equal(sequence_ids[:, 1:], sequence_ids[:, :-1], out=begins[:, 1:])
    starts = np.flatnonzero(begins)
    offsets = np.full(offset_count(len(starts)) + 1, sequence_ids.size, dtype=np.int32)
    offsets[: len(starts)] = starts
    return offsets
