"""Random numbers that depend on their key only: not on the worker, the rank, the host, or earlier draws.

The generator is Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Key and counter
fix its stream. Only its raw 64-bit output is used: numpy guarantees that this does not change between versions.
"""

import enum
import threading

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
    # A new generator would first read the system's entropy, which takes longer than the numbers.
    generator = _of_thread.generator
    generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": np.array([0, 0, epoch, index], np.uint64), "key": np.array([seed, purpose], np.uint64)},
        "buffer": np.zeros(4, np.uint64),
        "buffer_pos": 4,  # nothing is left in the buffer
        "has_uint32": 0,
        "uinteger": 0,
    }
    return generator.random_raw(count)


def random_uniforms(seed: int, purpose: Purpose, epoch: int, index: int, count: int) -> NDArray[np.float64]:
    """The same numbers as float64 (count,) in [0, 1), 53 bits each."""
    return (random_uint64(seed, purpose, epoch, index, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
