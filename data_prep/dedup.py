"""Duplicates among documents, found by all ranks together (`python -m data_prep shards --dedup {exact,near}`).

Three steps, whose intermediate results lie in files, so that no rank holds more than a part of them:

1. fingerprints: each unit of documents by itself (data_prep/fingerprints.py).
2. pairs: each band by itself, in parts of a few million documents: those with equal keys are compared.
3. groups: rank 0 joins the pairs. Of each group the first document stays that is about as long as the longest: where
   one holds the others as its parts, that is the whole.

Documents of both splits are compared whichever is made into shards. First come those that have shards already
(--against), then the held-out ones of --documents, then their train split, each in the order of the command line. So
a document that is held out never has a twin that is trained on: in one corpus the twin in the train split goes, and
between corpora the one of the later corpus, whichever split it stands in.
"""

import bisect
import hashlib
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.atomic import replacing
from data_prep.batch import Ranks
from data_prep.documents import HELD_OUT, TRAIN, read_manifest
from data_prep.errors import UserError
from data_prep.fingerprints import Fingerprinter, Method, bands, same
from data_prep.ledger import Ledger, Record
from data_prep.units import Corpus, Unit, open_corpus, read_column, read_texts

IntArray = NDArray[np.int64]

PART_DOCUMENTS = 1 << 22  # whose keys are sorted at once
PAIRS_AT_ONCE = 1 << 17  # whose fingerprints are in memory at once
NEARLY_AS_LONG = 0.8  # of two editions; a shorter one is a part of the other


@dataclass(frozen=True)
class Comparison:
    """All documents that are compared, numbered from 0 in the order in which they stay.

    units: of all of them. firsts: number of the first document of each unit, and at the end how many there are.
    precedence: number of the first document of each kind: a document stays rather than one of a later kind.
    start, stop: the numbers of those that become shards. digest: of the contents of all.
    """

    units: list[Unit]
    firsts: list[int]
    precedence: list[int]
    start: int
    stop: int
    digest: str


@dataclass(frozen=True)
class Duplicates:
    """Documents that are left out, by their numbers in the comparison, ascending; and for each the one that stays."""

    removed: IntArray  # (R,)
    kept: IntArray  # (R,)

    def between(self, first: int, stop: int) -> IntArray:
        """Which of documents first to stop - 1 are left out."""
        return self.removed[np.searchsorted(self.removed, first) : np.searchsorted(self.removed, stop)]


def compare(directories: Sequence[Path], split: str, against: Sequence[Path]) -> Comparison:
    """Lists what is compared when `split` of `directories` becomes shards. UserError: a directory is in both lists."""
    twice = {path.resolve() for path in directories} & {path.resolve() for path in against}
    if twice:
        raise UserError(f"{min(twice)} is in --documents and in --against; name it once")
    units: list[Unit] = []
    firsts, precedence = [0], []
    start = stop = 0
    digest = hashlib.sha256()
    for paths in (against, directories):
        for kind in (HELD_OUT, TRAIN):
            there = [path for path in paths if _holds(path, kind)]
            corpus = open_corpus(there, kind) if there else Corpus([], [], "")
            digest.update(f"{kind} {corpus.digest}\n".encode())
            units += corpus.units
            before = firsts[-1]
            precedence.append(before)
            for unit in corpus.units:
                firsts.append(firsts[-1] + unit.documents)
            if paths is directories and kind == split:
                start, stop = before, firsts[-1]
    return Comparison(units, firsts, precedence, start, stop, digest.hexdigest())


def _holds(directory: Path, split: str) -> bool:
    counts = read_manifest(directory).counts
    return split in counts and counts[split].documents > 0


def find(ranks: Ranks, comparison: Comparison, method: Method, scratch: Path) -> Duplicates:
    """The duplicates among the documents that become shards; `scratch` is kept until `discard`, to go on from."""
    ledgers = Ledger(scratch / "fingerprints"), Ledger(scratch / "pairs")
    identity = {"method": method, "digest": comparison.digest}

    def begin() -> None:
        for ledger in ledgers:
            ledger.begin(identity, discard_others=True)

    ranks.on_root(begin)
    fingerprinter = Fingerprinter(method)
    sizes = [unit.text_bytes for unit in comparison.units]

    def write_fingerprints(index: int, unit: Unit) -> Record:
        found = fingerprinter.of(read_texts(unit))
        arrays: dict[str, NDArray] = {"keys": found.keys.T, "values": found.values, "sizes": found.sizes}
        files = [_write(ledgers[0].output / f"{index:06d}.{name}.npy", array) for name, array in arrays.items()]
        return {"files": files, "documents": unit.documents}

    ranks.run(comparison.units, write_fingerprints, ledgers[0], sizes=sizes, description="fingerprints")
    parts = -(-comparison.firsts[-1] // PART_DOCUMENTS)
    tasks = [(band, part) for band in range(bands(method)) for part in range(parts)]

    def write_pairs(index: int, task: tuple[int, int]) -> Record:
        pairs = equal_pairs(ledgers[0].output, comparison.firsts, *task, parts)
        return {"files": [_write(ledgers[1].output / f"{index:06d}.npy", pairs)]}

    key_bytes = 8 * comparison.firsts[-1] // parts  # that each task looks at
    ranks.run(tasks, write_pairs, ledgers[1], sizes=[key_bytes] * len(tasks), description="pairs")

    def group() -> Duplicates:
        parents = np.arange(comparison.firsts[-1], dtype=np.int64)
        for index in range(len(tasks)):
            join(parents, np.load(ledgers[1].output / f"{index:06d}.npy"))
        alike = np.flatnonzero(parents != np.arange(len(parents)))
        alike = np.union1d(alike, parents[alike])  # (D,) all documents of groups
        groups = np.unique(roots(parents, alike), return_inverse=True)[1]  # (D,)
        kinds = np.searchsorted(comparison.precedence, alike, side="right")  # (D,)
        (sizes,) = _gather(ledgers[0].output, comparison.firsts, alike, "sizes")
        kept = those_that_stay(alike, groups, kinds, sizes)[groups]  # (D,)
        removed = (alike != kept) & (alike >= comparison.start) & (alike < comparison.stop)
        return Duplicates(alike[removed], kept[removed])

    return ranks.on_root(group)


def discard(scratch: Path) -> None:
    """Deletes the intermediate results."""
    shutil.rmtree(scratch, ignore_errors=True)


def _write(path: Path, array: NDArray) -> dict[str, object]:
    content = io.BytesIO()  # where np.save itself meets a full disk, its error does not say so
    np.save(content, np.ascontiguousarray(array))
    with replacing(path) as temporary:
        temporary.write_bytes(content.getbuffer())
    return {"name": path.name, "bytes": path.stat().st_size}


def equal_pairs(directory: Path, firsts: Sequence[int], band: int, part: int, parts: int) -> IntArray:
    """The pairs of documents, int64[P, 2], that share a key of one part of one band, and are one text.

    Each is compared with the first document of the same key and with the one before it, in the order of the next band's
    keys, which brings together what is most alike. In a large bucket of one text these join all; and with many bands,
    what one leaves apart another brings together.
    """
    columns, numbers = [], []
    for index, first in enumerate(firsts[:-1]):
        keys = np.load(directory / f"{index:06d}.keys.npy", mmap_mode="r")
        here = np.flatnonzero(keys[band] % np.uint64(parts) == part)
        columns.append(np.stack([keys[(band + 1) % len(keys)][here], keys[band][here]]))
        numbers.append(here + first)
    number = np.concatenate(numbers)  # (D,)
    order = np.lexsort(np.concatenate(columns, axis=1))
    key, number = np.concatenate([column[1] for column in columns])[order], number[order]
    follows = np.flatnonzero(key[1:] == key[:-1]) + 1
    buckets = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    leaders = buckets[np.searchsorted(buckets, follows, side="right") - 1]
    others = np.concatenate([number[leaders], number[follows - 1]])  # (P,)
    own = np.concatenate([number[follows]] * 2)
    packed = np.unique(np.minimum(others, own) << 32 | np.maximum(others, own))
    pairs = np.stack([packed >> 32, packed & 0xFFFFFFFF], axis=1)
    found = [
        block[_are_same(directory, firsts, block)]
        for block in (pairs[first : first + PAIRS_AT_ONCE] for first in range(0, len(pairs), PAIRS_AT_ONCE))
    ]
    return np.concatenate([*found, np.zeros((0, 2), np.int64)])


def _are_same(directory: Path, firsts: Sequence[int], pairs: IntArray) -> NDArray[np.bool_]:
    documents, places = np.unique(pairs, return_inverse=True)
    value, size = _gather(directory, firsts, documents, "values", "sizes")
    first, second = places.reshape(pairs.shape).T
    return same(value[first], value[second], size[first], size[second])


def _gather(directory: Path, firsts: Sequence[int], documents: IntArray, *names: str) -> list[NDArray]:
    """What was written under each of `names` about some documents, ascending numbers, in their order."""
    gathered: list[list[NDArray]] = [[] for _ in names]
    bounds = np.searchsorted(documents, firsts)
    for index in range(len(firsts) - 1):
        here = documents[bounds[index] : bounds[index + 1]] - firsts[index]
        if len(here) or not index:  # the first one for its type, where there are no documents
            for name, taken in zip(names, gathered):
                taken.append(np.load(directory / f"{index:06d}.{name}.npy", mmap_mode="r")[here])
    return [np.concatenate(taken) for taken in gathered]


def those_that_stay(documents: IntArray, groups: IntArray, kinds: IntArray, sizes: IntArray) -> IntArray:
    """Which document of each of G groups stays, int64[G].

    It is of the earliest kind in its group and, of those, the first that is nearly as long as the longest.

    Args:
        documents, groups: int64[D] each, a number and its group, 0 to G - 1. kinds, sizes: int64[D] each, of them.
    """
    count = int(groups.max(initial=-1)) + 1
    earliest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(earliest, groups, kinds)
    eligible = kinds == earliest[groups]
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, groups[eligible], sizes[eligible])
    eligible &= sizes >= NEARLY_AS_LONG * longest[groups]
    stay = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(stay, groups[eligible], documents[eligible])
    return stay


def roots(parents: IntArray, documents: IntArray) -> IntArray:
    """The first document of each document's group. `parents` points from each to one before it, or to itself; the
    pointers of `documents` are moved to that first one on the way."""
    while True:
        above = parents[documents]
        top = parents[above]
        if (above == top).all():
            return above
        parents[documents] = top  # half the way, for all that lie on it, too


def join(parents: IntArray, pairs: IntArray) -> None:
    """Makes one group of the groups of each pair, in `parents`: union-find on arrays."""
    first, second = pairs.T
    while len(first):
        first, second = roots(parents, first), roots(parents, second)
        apart = first != second
        first, second = np.minimum(first, second)[apart], np.maximum(first, second)[apart]
        np.minimum.at(parents, second, first)


def read_names(comparison: Comparison, documents: IntArray) -> Iterator[tuple[str, str]]:
    """Directory and id of each of some documents, ascending numbers, in their order."""
    bounds = np.searchsorted(documents, comparison.firsts).tolist()
    for index, unit in enumerate(comparison.units):
        wanted = documents[bounds[index] : bounds[index + 1]] - comparison.firsts[index]
        if not len(wanted):
            continue
        ids = list(read_column(unit, "id"))
        starts = [0]
        for piece in unit.slices:
            starts.append(starts[-1] + piece.count)
        for place in wanted.tolist():
            piece = unit.slices[bisect.bisect_right(starts, place) - 1]
            yield piece.path.parent.name, ids[place]


def write_names(path: Path, comparison: Comparison, duplicates: Duplicates) -> None:
    """Writes a JSON object a line for each document left out: its directory and id, and those of the one that stays."""
    kept = np.unique(duplicates.kept)
    names = dict(zip(kept.tolist(), read_names(comparison, kept)))
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for name, twin in zip(read_names(comparison, duplicates.removed), duplicates.kept.tolist()):
            line = {"removed": list(name), "kept": list(names[twin])}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
