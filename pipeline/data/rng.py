"""The random numbers of training: each purpose has streams of its own. `common/rng.py` has the generator."""

import enum
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from common.rng import raw_numbers


class Purpose(enum.IntEnum):
    """What the numbers are for. Each purpose has its own stream, so more draws for one do not change another."""

    ORDER = 1
    MASK = 2
    SENTENCE_ORDER = 3
    DROPOUT = 4
    CORPUS = 5


def random_uint64(seed: int, purpose: Purpose, epoch: int, index: int, count: int) -> NDArray[np.uint64]:
    """The first `count` 64-bit numbers of the stream (seed, purpose, epoch, index): uint64 (count,)."""
    return raw_numbers((seed, purpose), (epoch, index), count)


def random_rows(
    seed: int, purpose: Purpose, epochs: Sequence[int], indices: Sequence[int], count: int
) -> NDArray[np.uint64]:
    """The first `count` numbers of each of N streams: uint64 (N, count). See `random_uint64`."""
    numbers = np.empty((len(indices), count), np.uint64)
    for row, (epoch, index) in enumerate(zip(epochs, indices)):
        numbers[row] = random_uint64(seed, purpose, epoch, index, count)
    return numbers


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's dropout in a step. It depends on nothing else, so a resumed run draws the same values."""
    return int(random_uint64(seed, Purpose.DROPOUT, step, rank, 1)[0] >> 1)
