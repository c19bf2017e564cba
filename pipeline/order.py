"""Which row is read at which position of training: a permutation of each epoch that is never written down.

A run's position is one number, the samples consumed. Position `p` belongs to epoch `p // rows`, and within an
epoch the order is a keyed bijection of [0, rows), evaluated where it is needed: a Feistel network over the next
power of four, walked until it lands inside ("cycle walking": Black & Rogaway, "Ciphers with arbitrary finite
domains", CT-RSA 2002). No list is built, so four billion rows open as fast as four.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline import draws

_ROUNDS = 8


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit bijection in which every input bit moves every output bit (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(index: NDArray[np.integer], rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The images of `index` (any shape, each in [0, rows)) under the permutation of (seed, epoch)."""
    half = np.uint64(max(1, (max(1, rows - 1).bit_length() + 1) // 2))  # bits of each half of the network
    low = (np.uint64(1) << half) - np.uint64(1)
    keys = draws.words(seed, draws.Purpose.ORDER, epoch, 0, _ROUNDS)
    images = np.asarray(index).astype(np.uint64)
    outside = np.ones(images.shape, dtype=bool)
    while outside.any():
        x = images[outside]
        left, right = x >> half, x & low
        for key in keys:
            left, right = right, left ^ (_mix(right ^ key) & low)
        images[outside] = (left << half) | right
        outside = images >= np.uint64(rows)
    return images.astype(np.int64)


def rows_at(positions: NDArray[np.integer], rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Epoch and row number of each position (samples consumed before it) in a set of `rows` rows."""
    epochs: NDArray[np.int64] = np.asarray(positions, dtype=np.int64) // rows
    chosen = np.empty_like(epochs)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        chosen[here] = permute(np.asarray(positions)[here] % rows, rows, seed, int(epoch))
    return epochs, chosen


def positions_of(
    step: int, micro_step: int, rank: int, world_size: int, micro_batch_size: int, train_batch_size: int
) -> NDArray[np.int64]:
    """Positions that a rank reads in one micro-step: (micro_batch_size,), consecutive.

    Together the ranks and micro-steps of a step cover [step * train_batch_size, (step + 1) * train_batch_size)
    once, however that batch is split.
    """
    start = step * train_batch_size + (micro_step * world_size + rank) * micro_batch_size
    return np.arange(start, start + micro_batch_size, dtype=np.int64)
