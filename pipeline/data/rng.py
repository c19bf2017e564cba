"""Random numbers that depend on their key only: not on the worker, the rank, the host, or earlier draws.

The generator is Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Key and counter
fix its stream. Only its raw 64-bit output is used: numpy guarantees that this does not change between versions.
"""

import enum
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Purpose(enum.IntEnum):
    """What the numbers are for. Each purpose has its own stream, so more draws for one do not change another."""

    ORDER = 1
    MASK = 2
    SENTENCE_ORDER = 3
    DROPOUT = 4
    CORPUS = 5


class _OfThread(threading.local):
    """The generator of each thread. Batches are made by several."""

    def __init__(self) -> None:
        self.generator = np.random.Philox(0)


_of_thread = _OfThread()


def random_uint64(seed: int, purpose: Purpose, epoch: int, index: int, count: int) -> NDArray[np.uint64]:
    """The first `count` 64-bit numbers of the stream (seed, purpose, epoch, index): uint64 (count,)."""
    # A new generator would first read the system's entropy, which takes longer than the numbers. This one reads its
    # state from Python's own numbers five times as fast as from arrays.
    state: Any = {
        "bit_generator": "Philox",
        "state": {"counter": (0, 0, epoch, index), "key": (seed, purpose)},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,  # nothing is left in the buffer
        "has_uint32": 0,
        "uinteger": 0,
    }
    generator = _of_thread.generator
    generator.state = state
    return generator.random_raw(count)


def random_rows(
    seed: int, purpose: Purpose, epochs: Sequence[int], indices: Sequence[int], count: int
) -> NDArray[np.uint64]:
    """The first `count` numbers of each of N streams: uint64 (N, count). See `random_uint64`."""
    numbers = np.empty((len(indices), count), np.uint64)
    for row, (epoch, index) in enumerate(zip(epochs, indices)):
        numbers[row] = random_uint64(seed, purpose, epoch, index, count)
    return numbers


def as_uniforms(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random 64-bit numbers as float64 in [0, 1), 53 bits each."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's dropout in a step. It depends on nothing else, so a resumed run draws the same values."""
    return int(random_uint64(seed, Purpose.DROPOUT, step, rank, 1)[0] >> 1)
