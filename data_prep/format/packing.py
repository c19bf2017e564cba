"""Packs segment pairs into rows, as many as fit, so that almost no position is padding."""

import numpy as np
from numpy.typing import NDArray

from data_prep.format.pairs import Parts

IntArray = NDArray[np.int64]


def max_pairs(max_seq_length: int) -> int:
    """Returns the largest number of pairs in a row. It bounds the memory of a training step for sentence labels."""
    return max(1, max_seq_length // 16)


def positions(parts: Parts) -> IntArray:
    """Returns int64[P], positions of each pair: [CLS] lead a [SEP] b trail [SEP], or [CLS] a [SEP] if b is empty."""
    return parts.total() + 2 + (parts.b > 0)


def pack(costs: IntArray, max_seq_length: int, max_pairs_in_row: int) -> IntArray:
    """Assigns pairs to rows by best-fit decreasing: the largest pair first, into the fullest row that has room.

    Rows with the same room are in one list. The bits of one integer tell which lists are not empty. So the time for a
    pair does not depend on the number of open rows.

    Args:
        costs: int64[P], positions of each pair, at most `max_seq_length` each.
        max_seq_length: positions of a row.
        max_pairs_in_row: largest number of pairs in a row; 1 gives each pair a row of its own.

    Returns:
        int64[P], the row of each pair. Rows are numbered by their first pair, from 0.
    """
    row_of = np.zeros(len(costs), np.int64)
    pairs_in: list[int] = []
    rows_with_room: list[list[int]] = [[] for _ in range(max_seq_length + 1)]
    rooms = 0  # bit r is set if rows_with_room[r] is not empty
    order = np.argsort(-costs, kind="stable")
    for pair, cost in zip(order.tolist(), costs[order].tolist()):
        fitting = rooms >> cost
        if fitting:
            room = cost + (fitting & -fitting).bit_length() - 1
            row = rows_with_room[room].pop()
            if not rows_with_room[room]:
                rooms ^= 1 << room
            pairs_in[row] += 1
        else:
            room, row = max_seq_length, len(pairs_in)
            pairs_in.append(1)
        row_of[pair] = row
        room -= cost
        if room and pairs_in[row] < max_pairs_in_row:
            rows_with_room[room].append(row)
            rooms |= 1 << room
    _, first_pairs, row_of = np.unique(row_of, return_index=True, return_inverse=True)
    rank = np.empty(len(first_pairs), np.int64)
    rank[np.argsort(first_pairs)] = np.arange(len(first_pairs))
    return rank[row_of]
