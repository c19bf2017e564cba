"""What a run trains on: one shard set or several, mixed by weight. Positions to batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.shards import open_shards
from pipeline import order
from pipeline.batches import Batch, BatchShape, Objective, Reader, blank


@dataclass(frozen=True)
class Corpora:
    """Shard sets of one vocabulary and one length of rows.

    Attributes:
        readers: of each corpus; all have the same shape.
        names: for people.
        shares: samples of each corpus in a block of `sum(shares)`; see pipeline/order.py.
        seed: of the mixture.
    """

    readers: tuple[Reader, ...]
    names: tuple[str, ...]
    shares: tuple[int, ...]
    seed: int

    @property
    def rows(self) -> int:
        """Rows of all corpora together."""
        return sum(len(reader.shards) for reader in self.readers)

    def read(self, positions: NDArray[np.int64]) -> Batch:
        """The batch of the given positions of the run, one row each."""
        corpora, indices = order.corpora_at(positions, self.shares, self.seed)
        batch = blank(len(positions), self.readers[0].shape)
        for number in np.unique(corpora).tolist():
            reader, here = self.readers[number], np.flatnonzero(corpora == number)
            epochs, rows = order.rows_at(indices[here], len(reader.shards), reader.seed)
            for field, values in zip(batch, reader.read(epochs.tolist(), rows.tolist())):
                field[here] = values
        return batch

    def progress(self, samples: int) -> dict[str, Any]:
        """Of a mixture, how far each corpus has come after `samples` of the run: "samples/NAME" and "epochs/NAME"."""
        if len(self.readers) == 1:
            return {}
        figures: dict[str, Any] = {}
        for name, reader, read in zip(self.names, self.readers, order.samples_of(samples, self.shares, self.seed)):
            figures |= {f"samples/{name}": read, f"epochs/{name}": read / len(reader.shards)}
        return figures

    def describe(self, samples: int) -> list[str]:
        """A line for each corpus of a mixture: its share, and how often a run of `samples` reads it."""
        if len(self.readers) == 1:
            return []
        counts = order.samples_of(samples, self.shares, self.seed)
        return [
            f"corpus {name}: {share / sum(self.shares):.2%} of the samples, "
            f"{count / len(reader.shards):.2f} epochs of {len(reader.shards):,} rows"
            for name, reader, share, count in zip(self.names, self.readers, self.shares, counts)
        ]


def open_corpora(
    directories: Sequence[Path],
    shares: Sequence[int],
    continues_word: NDArray[np.bool_],
    objective: Objective,
    seed: int,
) -> Corpora:
    """Opens the shard sets of a run. UserError: see `data_prep.shards.open_shards`."""
    sets = [open_shards(directory) for directory in directories]
    shape = BatchShape.of(*sets)
    readers = tuple(
        Reader(shards, shape, continues_word, objective, order.seed_of(number, seed))
        for number, shards in enumerate(sets)
    )
    return Corpora(readers, names_of(directories), tuple(shares), seed)


def names_of(directories: Sequence[Path]) -> tuple[str, ...]:
    """The shortest ends of paths that tell them apart, as ("wikipedia", "books") or ("wiki/train", "books/train")."""
    paths = [directory.resolve() for directory in directories]
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = tuple("/".join(path.parts[-depth:]) for path in paths)
        if len(set(names)) == len(set(paths)):
            return names
    return ()


def training_step(
    corpora: Corpora, step: int, rank: int, world_size: int, micro_batch_size: int, train_batch_size: int
) -> list[Batch]:
    """The micro-batches of one rank in one step."""
    return [
        corpora.read(order.positions_of(step, micro_step, rank, world_size, micro_batch_size, train_batch_size))
        for micro_step in range(train_batch_size // (micro_batch_size * world_size))
    ]
