"""Which row is read at which position of training: a permutation of each epoch that is never written down.

A run's position is one number, the samples consumed. Position `p` belongs to epoch `p // rows`, and within an
epoch the order is a keyed bijection of [0, rows), evaluated where it is needed: a Feistel network over the next
power of four, walked until it lands inside ("cycle walking": Black & Rogaway, "Ciphers with arbitrary finite
domains", CT-RSA 2002). No list is built, so four billion rows open as fast as four.

Several corpora, each with a weight, are mixed in blocks: of as many consecutive positions as the weights, as whole
numbers, add up to, each corpus has its number, at places that a permutation of the block gives. What a corpus is given
it reads in its own order, epoch after epoch: another weight elsewhere shifts how far it comes, and no row.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from pipeline import draws

_ROUNDS = 8
LONGEST_BLOCK = 1 << 16


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit bijection in which every input bit moves every output bit (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(
    index: NDArray[np.integer], rows: int, seed: int, epoch: int, purpose: draws.Purpose = draws.Purpose.ORDER
) -> NDArray[np.int64]:
    """The images of `index` (any shape, each in [0, rows)) under the permutation of (seed, purpose, epoch)."""
    half = np.uint64(max(1, (max(1, rows - 1).bit_length() + 1) // 2))  # bits of each half of the network
    low = (np.uint64(1) << half) - np.uint64(1)
    keys = draws.words(seed, purpose, epoch, 0, _ROUNDS)
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


def whole_shares(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """How many positions of a block each corpus has: the smallest whole numbers in proportion to `weights` above 0.

    Where they would add up to more than `LONGEST_BLOCK`, they are rounded to that sum (by largest remainder, and no
    share to 0), so that shares hold within blocks that are not too long.
    """
    scale = lcm(*(weight.denominator for weight in weights))
    shares = [int(weight * scale) for weight in weights]
    shares = [share // gcd(*shares) for share in shares]
    total = sum(shares)
    if total <= LONGEST_BLOCK:
        return tuple(shares)
    rounded = [max(1, share * LONGEST_BLOCK // total) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda corpus: -(shares[corpus] * LONGEST_BLOCK % total))
    for corpus in by_remainder[: max(0, LONGEST_BLOCK - sum(rounded))]:
        rounded[corpus] += 1
    return tuple(rounded)


def corpora_at(
    positions: NDArray[np.integer], shares: Sequence[int], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which corpus each position reads, and at which position of that corpus's own stream.

    Args:
        positions: (N,) of the run.
        shares: positions of each corpus in a block of `sum(shares)`.
    """
    if len(shares) == 1:
        return np.zeros(len(positions), np.int64), positions.astype(np.int64)
    ends = np.cumsum(np.asarray(shares, dtype=np.int64))
    block_length = int(ends[-1])
    blocks: NDArray[np.int64] = positions.astype(np.int64) // block_length
    places: NDArray[np.int64] = positions.astype(np.int64) % block_length
    images = np.empty_like(places)
    for block in np.unique(blocks):
        here = blocks == block
        images[here] = permute(places[here], block_length, seed, int(block), draws.Purpose.CORPUS)
    corpora = np.searchsorted(ends, images, side="right").astype(np.int64)
    own = np.asarray(shares, dtype=np.int64)[corpora]
    indices: NDArray[np.int64] = blocks * own + images - (ends[corpora] - own)
    return corpora, indices


def samples_of(positions: int, shares: Sequence[int], seed: int) -> list[int]:
    """How many of the first `positions` samples of a run are each corpus's."""
    blocks, rest = divmod(positions, sum(shares))
    corpora, _ = corpora_at(np.arange(positions - rest, positions), shares, seed)
    begun = np.bincount(corpora, minlength=len(shares))
    return (blocks * np.asarray(shares) + begun).tolist()


def seed_of(corpus: int, seed: int) -> int:
    """The seed of a corpus's order and draws: the run's for the first, and for each other one of its own."""
    return seed if corpus == 0 else int(draws.words(seed, draws.Purpose.CORPUS, 0, corpus, 1)[0] >> 1)


def positions_of(
    step: int, micro_step: int, rank: int, world_size: int, micro_batch_size: int, train_batch_size: int
) -> NDArray[np.int64]:
    """Positions that a rank reads in one micro-step: (micro_batch_size,), consecutive.

    Together the ranks and micro-steps of a step cover [step * train_batch_size, (step + 1) * train_batch_size)
    once, however that batch is split.
    """
    start = step * train_batch_size + (micro_step * world_size + rank) * micro_batch_size
    return np.arange(start, start + micro_batch_size, dtype=np.int64)
