"""Segment pairs to rows: as many pairs as fit, so that next to no position of a row is padding."""

import numpy as np
from numpy.typing import NDArray

from data_prep.pairs import Parts

IntArray = NDArray[np.int64]


def max_pairs(max_seq_length: int) -> int:
    """Most pairs of a row: a bound on the sizes of what a training step allocates for sentence labels."""
    return max(1, max_seq_length // 16)


def positions(parts: Parts) -> IntArray:
    """Positions each pair takes in a row: [CLS] lead a [SEP] b trail [SEP], or [CLS] a [SEP] where b is empty."""
    return parts.total() + 2 + (parts.b > 0)


def pack(costs: IntArray, max_seq_length: int, most_pairs: int) -> IntArray:
    """Assigns pairs to rows by best-fit decreasing: the largest pair first, into the fullest row that has room.

    Rows with the same room are kept in one list, and the set of rooms that occur as the bits of one integer, so
    a pair costs the same however many rows are open.

    Args:
        costs: int64[P], positions of each pair, each at most `max_seq_length`.
        max_seq_length: positions of a row.
        most_pairs: pairs that a row may hold; 1 gives each pair its own row.

    Returns:
        int64[P], the row of each pair. Rows are numbered by their first pair, from 0.
    """
    row_of = np.zeros(len(costs), np.int64)
    pairs_in: list[int] = []
    rows_with_room: list[list[int]] = [[] for _ in range(max_seq_length + 1)]
    rooms = 0  # bit r is set where rows_with_room[r] is not empty
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
        if room and pairs_in[row] < most_pairs:
            rows_with_room[room].append(row)
            rooms |= 1 << room
    _, first_pairs, row_of = np.unique(row_of, return_index=True, return_inverse=True)
    rank = np.empty(len(first_pairs), np.int64)
    rank[np.argsort(first_pairs)] = np.arange(len(first_pairs))
    return rank[row_of]
