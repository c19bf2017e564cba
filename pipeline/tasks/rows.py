"""Sequences of any lengths packed into rows of about equal length, so that next to no padding is computed.

As in pre-training a row holds several sequences that cannot see each other. Here a batch is a number of examples, not
of rows: it is spread over as few rows as hold it, evenly.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.vocabulary import CLS_ID, PAD_ID, SEP_ID

IGNORED = -100  # the label that the losses pass over
SHORTEST_ROW = 128
"""Rows are filled to the longest sequence of the batch, or to this: attention costs the square of a row's length, and
short rows cannot be filled well."""

Tokens = NDArray[np.uint16]  # (n,)
Segments = tuple[Tokens, Tokens | None]
"""The two segments of a sequence, without special tokens; the second may be missing."""


class Rows(NamedTuple):
    """What the encoder reads, B rows of S positions with up to P sequences each, int64. See `AlbertModel.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S) 0 in [CLS] first [SEP], 1 in second [SEP]
    position_ids: NDArray[np.int64]  # (B, S) from 0 at each [CLS]
    sequence_ids: NDArray[np.int64]  # (B, S) number of the sequence in its row, -1 on padding


class Places(NamedTuple):
    """Where the N sequences of a batch stand in its rows, int64."""

    row: NDArray[np.int64]  # (N,)
    number: NDArray[np.int64]  # (N,) which sequence of its row
    start: NDArray[np.int64]  # (N,) position of its [CLS] in the row
    length: NDArray[np.int64]  # (N,) tokens, special ones included


def length_of(segments: Segments) -> int:
    """Tokens of a sequence, [CLS] and [SEP] included."""
    first, second = segments
    return len(first) + 2 if second is None else len(first) + len(second) + 3


def distribute(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Which sequences stand in which row: the fewest rows into which they fit when the longest go first, each into the
    emptiest row.

    Args:
        lengths: of the sequences, none above `row_length`.
    """
    order = np.argsort(lengths, kind="stable")[::-1].tolist()
    count = max(1, -(-sum(lengths) // row_length))
    while True:
        rows: list[list[int]] = [[] for _ in range(count)]
        fill = [0] * count
        for index in order:
            emptiest = fill.index(min(fill))
            rows[emptiest].append(index)
            fill[emptiest] += lengths[index]
        if max(fill) <= row_length:
            return rows
        count += 1


def pack(sequences: Sequence[Segments]) -> tuple[Rows, Places]:
    """Lays [CLS] first [SEP] second [SEP] of each sequence into rows; no sequences make one row of padding."""
    lengths = [length_of(segments) for segments in sequences]
    rows = distribute(lengths, max(SHORTEST_ROW, *lengths, 0))
    longest = max(sum(lengths[index] for index in row) for row in rows)
    shape = (len(rows), max(8, -(-longest // 8) * 8))  # a multiple of 8 suits matrix units
    packed = Rows(
        input_ids=np.full(shape, PAD_ID, dtype=np.int64),
        token_type_ids=np.zeros(shape, dtype=np.int64),
        position_ids=np.zeros(shape, dtype=np.int64),
        sequence_ids=np.full(shape, -1, dtype=np.int64),
    )
    row_of, number_of, start_of = (np.zeros(len(sequences), dtype=np.int64) for _ in range(3))
    for row, members in enumerate(rows):
        start = 0
        for number, index in enumerate(members):
            _lay_out(packed, row, start, number, sequences[index])
            row_of[index], number_of[index], start_of[index] = row, number, start
            start += lengths[index]
    return packed, Places(row_of, number_of, start_of, np.array(lengths, dtype=np.int64))


def _lay_out(rows: Rows, row: int, start: int, number: int, segments: Segments) -> None:
    first, second = segments
    ids, types = rows.input_ids[row], rows.token_type_ids[row]
    end = start + length_of(segments)
    middle = start + 1 + len(first)  # the first [SEP]
    ids[start], ids[start + 1 : middle], ids[middle] = CLS_ID, first, SEP_ID
    if second is not None:
        ids[middle + 1 : end - 1], ids[end - 1] = second, SEP_ID
        types[middle + 1 : end] = 1
    rows.position_ids[row, start:end] = np.arange(end - start)
    rows.sequence_ids[row, start:end] = number


def cls_grid(places: Places, rows: int) -> NDArray[np.int64]:
    """(B, P): the positions of each row's [CLS] tokens, 0 where unused; P is at least 1."""
    grid = np.zeros((rows, 1 + int(places.number.max(initial=0))), dtype=np.int64)
    grid[places.row, places.number] = places.start
    return grid


def truncate_pair(first: Tokens, second: Tokens, room: int) -> tuple[Tokens, Tokens]:
    """Both texts without the ends that do not fit: tokens go, one by one, from the end of whichever is longer.

    Of two that are equally long the second loses first.
    """
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    # Down to the length of the shorter one, then from both in turn.
    keep_first = min(len(first), max(room - len(second), (room + 1) // 2))
    return first[:keep_first], second[: room - keep_first]
