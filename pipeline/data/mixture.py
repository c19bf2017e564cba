"""Mixture: several corpora by weight, read as one stream of batches.

The weights are whole numbers. The positions of a run are divided into blocks of `sum(weights)` positions. Each corpus
has as many positions of a block as its weight; a permutation of the block says which. Each corpus reads its rows in its
own order, epoch after epoch. So a weight changes only how fast a corpus is read, not the order of its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.format.shards import open_shards
from pipeline.data import rng, sampler
from pipeline.data.collate import Batch, BatchShape, Collator, Objective, blank
from pipeline.data.masking import MaskingSettings

MAX_BLOCK = 1 << 16  # positions of the longest block


@dataclass(frozen=True)
class Mixture:
    """Corpora with the same vocabulary and the same length of rows."""

    collators: tuple[Collator, ...]  # one per corpus; all have the same shape
    names: tuple[str, ...]  # of the corpora, for people
    weights: tuple[int, ...]  # positions of each corpus in a block
    seed: int  # of the mixture

    @property
    def rows(self) -> int:
        """Rows of all corpora together."""
        return sum(len(collator.shards) for collator in self.collators)

    def read(self, positions: NDArray[np.int64], size: int | None = None) -> Batch:
        """The batch of the run's `positions` (N,), one row each, and empty rows up to `size` rows, if given."""
        empty = (len(positions) if size is None else size) - len(positions)
        corpora, indices = corpora_at(positions, self.weights, self.seed)
        read = []
        for number in np.unique(corpora).tolist():
            collator, here = self.collators[number], np.flatnonzero(corpora == number)
            epochs, rows = sampler.rows_at(indices[here], len(collator.shards), collator.seed)
            read.append((here, collator, epochs.tolist(), rows.tolist()))
        if len(read) == 1:  # needs no copy
            _, collator, epochs, rows = read[0]
            return collator.read(epochs + [0] * empty, rows + [-1] * empty)
        batch = blank(len(positions) + empty, self.collators[0].shape)
        for here, collator, epochs, rows in read:
            for field, values in zip(batch, collator.read(epochs, rows)):
                field[here] = values
        return batch

    def progress(self, samples: int) -> dict[str, Any]:
        """How far each corpus is read after `samples` of the run: "samples/NAME" and "epochs/NAME".

        Empty if there is only one corpus.
        """
        if len(self.collators) == 1:
            return {}
        metrics: dict[str, Any] = {}
        counts = samples_per_corpus(samples, self.weights, self.seed)
        for name, collator, count in zip(self.names, self.collators, counts):
            metrics |= {f"samples/{name}": count, f"epochs/{name}": count / len(collator.shards)}
        return metrics

    def describe(self, samples: int) -> list[str]:
        """One line per corpus: its part of the samples, and how often a run of `samples` reads it.

        Empty if there is only one corpus.
        """
        if len(self.collators) == 1:
            return []
        counts = samples_per_corpus(samples, self.weights, self.seed)
        return [
            f"corpus {name}: {weight / sum(self.weights):.2%} of the samples, "
            f"{count / len(collator.shards):.2f} epochs of {len(collator.shards):,} rows"
            for name, collator, weight, count in zip(self.names, self.collators, self.weights, counts)
        ]


def open_mixture(
    directories: Sequence[Path],
    weights: Sequence[int],
    continues_word: NDArray[np.bool_],
    objective: Objective,
    seed: int,
    masking: MaskingSettings,
) -> Mixture:
    """Opens the shard sets of a run, one for each corpus. UserError: see `data_prep.format.shards.open_shards`.

    Args:
        weights: as `whole_weights` returns them.
        continues_word, objective, masking: see `Collator`.
    """
    sets = [open_shards(directory) for directory in directories]
    shape = BatchShape.of(*sets, masking=masking)
    collators = tuple(
        Collator(shards, shape, continues_word, objective, corpus_seed(number, seed), masking)
        for number, shards in enumerate(sets)
    )
    return Mixture(collators, names_of(directories), tuple(weights), seed)


def names_of(directories: Sequence[Path]) -> tuple[str, ...]:
    """The shortest ends of paths that differ, such as ("wikipedia", "books") or ("wiki/train", "books/train")."""
    paths = [directory.resolve() for directory in directories]
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = tuple("/".join(path.parts[-depth:]) for path in paths)
        if len(set(names)) == len(set(paths)):
            return names
    return ()


def whole_weights(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """The smallest whole numbers in proportion to `weights`, all above 0.

    If their sum would exceed `MAX_BLOCK`, they are rounded to that sum by largest remainder, each to at least 1. Short
    blocks keep each corpus close to its weight at every moment of the run.
    """
    scale = lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * scale) for weight in weights]
    whole = [weight // gcd(*whole) for weight in whole]
    total = sum(whole)
    if total <= MAX_BLOCK:
        return tuple(whole)
    rounded = [max(1, weight * MAX_BLOCK // total) for weight in whole]
    by_remainder = sorted(range(len(whole)), key=lambda corpus: -(whole[corpus] * MAX_BLOCK % total))
    for corpus in by_remainder[: max(0, MAX_BLOCK - sum(rounded))]:
        rounded[corpus] += 1
    return tuple(rounded)


def corpora_at(
    positions: NDArray[np.integer], weights: Sequence[int], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The corpus that each of the run's `positions` (N,) reads, and its position in that corpus: each (N,)."""
    if len(weights) == 1:
        return np.zeros(len(positions), np.int64), positions.astype(np.int64)
    ends = np.cumsum(np.asarray(weights, dtype=np.int64))
    block_length = int(ends[-1])
    blocks: NDArray[np.int64] = positions.astype(np.int64) // block_length
    in_block: NDArray[np.int64] = positions.astype(np.int64) % block_length
    images = np.empty_like(in_block)
    for block in np.unique(blocks):
        here = blocks == block
        images[here] = sampler.permute(in_block[here], block_length, seed, int(block), rng.Purpose.CORPUS)
    corpora = np.searchsorted(ends, images, side="right").astype(np.int64)
    own = np.asarray(weights, dtype=np.int64)[corpora]
    indices: NDArray[np.int64] = blocks * own + images - (ends[corpora] - own)
    return corpora, indices


def samples_per_corpus(samples: int, weights: Sequence[int], seed: int) -> list[int]:
    """How many of a run's first `samples` samples come from each corpus."""
    blocks, rest = divmod(samples, sum(weights))
    corpora, _ = corpora_at(np.arange(samples - rest, samples), weights, seed)
    begun = np.bincount(corpora, minlength=len(weights))
    return (blocks * np.asarray(weights) + begun).tolist()


def corpus_seed(corpus: int, seed: int) -> int:
    """The seed of one corpus's order and draws: the run's own for the first corpus, a derived one for the others."""
    return seed if corpus == 0 else int(rng.random_uint64(seed, rng.Purpose.CORPUS, 0, corpus, 1)[0] >> 1)
