"""Finds documents that are similar to held-out ones: other editions, copies, and parts of a text.

The held-out documents become an index of their runs of 8 words. Each run of the others is looked up there. A document
is left out if `MIN_SHARE` of the shorter one's runs are in the other; of fewer than 1,000 runs `MIN_SHORT_SHARE`. Words
are compared by their consonants, as by `--dedup near`. Each Chinese or Japanese character is a word.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.dedup import write_array
from data_prep.corpus.fingerprints import LONG_TEXT
from data_prep.corpus.word_runs import Runs, read_runs

IntArray = NDArray[np.int64]

RUN_WORDS = 8
MIN_SHARE, MIN_SHORT_SHARE = 0.2, 0.5
MIN_COMMON = 16  # runs of a longer text
MAX_OWNERS = 64  # of a run: what more documents have, such as a licence, counts for the first ones


def _places(hashes: NDArray[np.uint64], table_bits: int) -> tuple[IntArray, NDArray[np.uint8]]:
    """Returns the byte of each hash in a table of 2**table_bits, by its first bits, and two bits there, by its last."""
    places = (hashes >> np.uint64(64 - table_bits)).view(np.int64)  # numpy copies indices that are not signed
    last, one, seven = hashes.astype(np.uint8), np.uint8(1), np.uint8(7)
    return places, one << (last & seven) | one << (last >> np.uint8(3) & seven)


class Index(NamedTuple):
    """The runs of the held-out documents."""

    hashes: NDArray[np.uint64]  # (K,) in order, once for each document that has it
    owners: NDArray[np.int32]  # (K,) the number of this document
    sizes: IntArray  # (O,) the runs of each document
    occupied: NDArray[np.uint8]  # (2**b,) a table of bits, set for those in `hashes` and for about one in 100 others

    @classmethod
    def of(cls, held_out: Iterable[str]) -> "Index":
        """Makes the index of the texts of held-out documents."""
        runs = read_runs(held_out, RUN_WORDS)
        hashes = np.concatenate([np.zeros(0, np.uint64), *runs.hashes])
        texts, inside = runs.texts_of(np.arange(len(hashes)))
        owners = texts[inside]
        sizes = np.bincount(owners)
        hashes = hashes[inside]
        order = np.argsort(hashes, kind="stable")  # the documents of equal hashes stay in order
        hashes, owners = hashes[order], owners[order]
        is_new = np.append(True, (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1]))[: len(order)]
        hashes, owners = hashes[is_new], owners[is_new]
        kept = np.arange(len(hashes)) - np.searchsorted(hashes, hashes) < MAX_OWNERS
        hashes, owners = hashes[kept], owners[kept]
        table_bits = max(10, len(hashes).bit_length() + 2)
        occupied = np.zeros(1 << table_bits, np.uint8)
        np.bitwise_or.at(occupied, *_places(hashes, table_bits))
        return cls(hashes, owners.astype(np.int32), sizes, occupied)

    def save(self, directory: Path) -> None:
        """Writes the arrays to files in `directory`."""
        directory.mkdir(exist_ok=True)
        for name, array in self._asdict().items():
            write_array(directory / f"{name}.npy", array)

    @classmethod
    def mapped(cls, directory: Path) -> "Index":
        """Maps what `save` wrote. The ranks of a host share this memory."""
        return cls(*(np.asarray(np.load(directory / f"{name}.npy", mmap_mode="r")) for name in cls._fields))

    def find(self, runs: Runs) -> tuple[IntArray, IntArray, IntArray]:
        """Returns (text, owner, runs of the text that the owner has) where there are any."""
        table_bits, size, first = len(self.occupied).bit_length() - 1, len(self.sizes), 0
        pairs, numbers = ([np.zeros(0, np.int64)] for _ in range(2))
        for hashes in runs.hashes:
            places, bits = _places(hashes, table_bits)
            likely = np.flatnonzero(self.occupied.take(places) & bits == bits)
            texts, inside = runs.texts_of(first + likely)
            wanted = hashes[likely[inside]]
            begins, ends = (np.searchsorted(self.hashes, wanted, side) for side in ("left", "right"))
            counts = ends - begins
            owners = self.owners[np.repeat(ends - counts.cumsum(), counts) + np.arange(counts.sum())]
            some, common = np.unique(np.repeat(texts[inside], counts) * size + owners, return_counts=True)
            pairs.append(some)
            numbers.append(common)
            first += len(hashes)
        pairs_of_all, places = np.unique(np.concatenate(pairs), return_inverse=True)
        return *np.divmod(pairs_of_all, size), np.bincount(places, np.concatenate(numbers)).astype(np.int64)


def most_similar(index: Index, texts: Iterable[str]) -> dict[int, int]:
    """Returns the numbers of the texts that are similar to held-out ones, and that of the most similar document."""
    if not len(index.hashes):
        return {}
    runs = read_runs(texts, RUN_WORDS)
    documents, owners, common = index.find(runs)  # (P,)
    own, others = runs.sizes[documents], index.sizes[owners]  # (P,) runs
    shorter = np.minimum(own, others)
    share = common / shorter
    least = np.where(shorter >= LONG_TEXT, MIN_SHARE, MIN_SHORT_SHARE)
    # A few words of a held-out document make no longer text similar to it.
    enough = (own <= others) | (common >= MIN_COMMON)
    similar = np.flatnonzero((share >= least) & enough)
    similar = similar[np.lexsort((-owners[similar], share[similar], documents[similar]))]  # of each the best comes last
    return dict(zip(documents[similar].tolist(), owners[similar].tolist()))
