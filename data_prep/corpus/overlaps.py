"""Finds documents that are similar to held-out ones: other editions, copies, and parts of a text.

The held-out documents become an index of their runs of 8 words. Each run of the others is looked up there. A document
is left out if `MIN_SHARE` of the shorter one's runs are in the other; of fewer than 1,000 runs `MIN_SHORT_SHARE`. A run
that a held-out document repeats counts once. Words are compared by their consonants, as by `--dedup near`. Each Chinese
or Japanese character is a word.
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
_HITS = 1 << 10  # runs whose owners are listed at once
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
    sizes: IntArray  # (O,) the different runs of each document
    occupied: NDArray[np.uint8]  # (2**b,) a table of bits, set for those in `hashes` and for about one in 100 others

    @classmethod
    def of(cls, held_out: Iterable[str]) -> "Index":
        """Makes the index of the texts of held-out documents."""
        runs = read_runs(held_out, RUN_WORDS)
        hashes = np.concatenate([np.zeros(0, np.uint64), *runs.hashes])
        texts, inside = runs.texts_of(np.arange(len(hashes)))
        hashes, owners = hashes[inside], texts[inside]
        order = np.argsort(hashes, kind="stable")  # the documents of equal hashes stay in order
        hashes, owners = hashes[order], owners[order]
        is_new = np.append(True, (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1]))[: len(order)]
        hashes, owners = hashes[is_new], owners[is_new]
        sizes = np.bincount(owners)
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

    def find(self, runs: Runs) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Returns (text, owner, runs of the text that the owner has, how many of them differ) where there are any."""
        table_bits, size, first = len(self.occupied).bit_length() - 1, len(self.sizes), 0
        texts, hits = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        for hashes in runs.hashes:
            places, bits = _places(hashes, table_bits)
            likely = np.flatnonzero(self.occupied.take(places) & bits == bits)
            of_texts, inside = runs.texts_of(first + likely)
            texts.append(of_texts[inside])
            hits.append(hashes[likely[inside]])
            first += len(hashes)
        text, hit = np.concatenate(texts), np.concatenate(hits)  # (H,)
        order = np.lexsort((hit, text))
        text, hit = text[order], hit[order]
        is_new = np.append(True, (hit[1:] != hit[:-1]) | (text[1:] != text[:-1]))[: len(hit)]  # (H,)
        parts = [(np.zeros(0, np.int64),) * 3]
        for at in range(0, len(hit), _HITS):
            chosen = slice(at, at + _HITS)
            begins, ends = (np.searchsorted(self.hashes, hit[chosen], side) for side in ("left", "right"))
            counts = ends - begins
            owners = self.owners[np.repeat(ends - counts.cumsum(), counts) + np.arange(counts.sum())]
            pairs, places = np.unique(np.repeat(text[chosen], counts) * size + owners, return_inverse=True)
            different = np.bincount(places, np.repeat(is_new[chosen], counts)).astype(np.int64)
            parts.append((pairs, np.bincount(places), different))
        found, *numbers = map(np.concatenate, zip(*parts))
        pairs, places = np.unique(found, return_inverse=True)
        common, different = (np.bincount(places, each).astype(np.int64) for each in numbers)
        return *np.divmod(pairs, size), common, different


def most_similar(index: Index, texts: Iterable[str]) -> dict[int, int]:
    """Returns the numbers of the texts that are similar to held-out ones, and that of the most similar document."""
    if not len(index.hashes):
        return {}
    runs = read_runs(texts, RUN_WORDS)
    documents, owners, common, different = index.find(runs)  # (P,)
    own, others = runs.sizes[documents], index.sizes[owners]  # (P,) runs
    shorter = np.minimum(own, others)
    common = np.where(own <= others, common, different)
    share = common / shorter
    least = np.where(shorter >= LONG_TEXT, MIN_SHARE, MIN_SHORT_SHARE)
    # A few words of a held-out document make no longer text similar to it.
    enough = (own <= others) | (common >= MIN_COMMON)
    similar = np.flatnonzero((share >= least) & enough)
    similar = similar[np.lexsort((-owners[similar], share[similar], documents[similar]))]  # of each the best comes last
    return dict(zip(documents[similar].tolist(), owners[similar].tolist()))
