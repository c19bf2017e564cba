"""Random numbers that depend on their key alone: not on worker, rank, host, or what was drawn before.

The stream of Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is fixed by its
key and counter. Only its raw 64-bit words are used, which numpy guarantees not to change between versions.
"""

import enum

import numpy as np
from numpy.typing import NDArray


class Purpose(enum.IntEnum):
    """What numbers are drawn for; each purpose has a stream of its own, so adding draws to one shifts no other."""

    ORDER = 1
    MASK = 2
    SENTENCE_ORDER = 3
    DROPOUT = 4
    CORPUS = 5


def words(seed: int, purpose: Purpose, epoch: int, index: int, count: int) -> NDArray[np.uint64]:
    """`count` random 64-bit words of the stream (seed, purpose, epoch, index)."""
    generator = np.random.Philox(
        key=np.array([seed, purpose], dtype=np.uint64),
        counter=np.array([0, 0, epoch, index], dtype=np.uint64),
    )
    return generator.random_raw(count)


def uniforms(seed: int, purpose: Purpose, epoch: int, index: int, count: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1), 53 bits each, of the stream (seed, purpose, epoch, index)."""
    return (words(seed, purpose, epoch, index, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
