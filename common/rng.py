"""Random numbers that depend on their key only: not on the worker, the rank, the host, or earlier draws.

The generator is Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Key and counter
fix its stream. Only its raw 64-bit output is used: numpy guarantees that this does not change between versions, other
than `Generator.random` and `Generator.choice`.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _OfThread(threading.local):
    """The generator of each thread. Batches are made by several."""

    def __init__(self) -> None:
        self.generator = np.random.Philox(0)


_of_thread = _OfThread()


def raw_numbers(key: tuple[int, int], counter: tuple[int, int], count: int) -> NDArray[np.uint64]:
    """The first `count` 64-bit numbers of a key from a counter on, whose upper half is given: uint64 (count,)."""
    # A new generator would first read the system's entropy, which takes longer than the numbers. This one reads its
    # state from Python's own numbers five times as fast as from arrays.
    state: Any = {
        "bit_generator": "Philox",
        "state": {"counter": (0, 0, *counter), "key": key},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,  # nothing is left in the buffer
        "has_uint32": 0,
        "uinteger": 0,
    }
    generator = _of_thread.generator
    generator.state = state
    return generator.random_raw(count)


def as_uniforms(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random 64-bit numbers as float64 in [0, 1), 53 bits each."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


class UniformStream:
    """The numbers of one key as float64 in [0, 1), in order, as many as are asked for."""

    def __init__(self, seed: int, index: int) -> None:
        self._generator = np.random.Philox(key=np.array([seed, index], np.uint64))

    def take(self, count: int) -> NDArray[np.float64]:
        """The next `count` numbers, float64 (count,)."""
        return as_uniforms(self._generator.random_raw(count))
