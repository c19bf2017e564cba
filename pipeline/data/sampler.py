"""Sampler: computes which row is read at which position of training.

A position is the number of samples consumed before. Position `p` of a set of `rows` rows belongs to epoch `p // rows`.
Each epoch has its own order: a permutation of [0, rows) that is computed at single positions and never stored, so four
billion rows open as fast as four. It is a Feistel network over the next power of four. Results outside [0, rows) go
through it again until they lie inside ("cycle walking": Black & Rogaway, "Ciphers with arbitrary finite domains",
CT-RSA 2002).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.data import rng

_ROUNDS = 8

Ranges = Sequence[tuple[int, int]]
"""Disjoint ranges in ascending order, each as its first number and the one after its last."""


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit bijection in which every input bit affects every output bit (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(
    index: NDArray[np.integer], rows: int, seed: int, epoch: int, purpose: rng.Purpose = rng.Purpose.ORDER
) -> NDArray[np.int64]:
    """Applies the permutation of (seed, purpose, epoch) to `index`, any shape, values in [0, rows)."""
    half = np.uint64(max(1, (max(1, rows - 1).bit_length() + 1) // 2))  # bits of each half of the network
    low = (np.uint64(1) << half) - np.uint64(1)
    keys = rng.random_uint64(seed, purpose, epoch, 0, _ROUNDS)
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
    """Epoch and row number, each (N,), of `positions` (N,) in a set of `rows` rows."""
    epochs: NDArray[np.int64] = np.asarray(positions, dtype=np.int64) // rows
    chosen = np.empty_like(epochs)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        chosen[here] = permute(np.asarray(positions)[here] % rows, rows, seed, int(epoch))
    return epochs, chosen


def batch_of_step(step: int, skipped: Ranges) -> int:
    """The batch that step `step` trains on, both from 0: the batches in `skipped` are left out."""
    batch = step
    for first, end in skipped:
        if batch < first:
            break
        batch += end - first
    return batch


def step_positions(
    batch: int, rank: int, world_size: int, micro_batch_size: int, train_batch_size: int
) -> list[NDArray[np.int64]]:
    """Positions that one rank reads in each micro-step: (N,), consecutive, N at most `micro_batch_size`.

    All ranks make as many micro-steps, and together cover [batch * train_batch_size, (batch + 1) * train_batch_size)
    once, however that batch is split. The last parts are shorter or empty if the batch does not divide.
    """
    first, end = batch * train_batch_size, (batch + 1) * train_batch_size
    starts = range(first + rank * micro_batch_size, end + rank * micro_batch_size, micro_batch_size * world_size)
    return [np.arange(start, min(start + micro_batch_size, end), dtype=np.int64) for start in starts]
