"""Finds duplicate documents on all ranks together (`python -m data_prep shards --dedup {exact,near}`).

Three steps, whose intermediate results are files, so that no rank holds more than a part of them in memory:

1. Fingerprints: of each work unit (data_prep/corpus/fingerprints.py).
2. Pairs: in each band, documents with equal keys are compared. A task is one band and a few million documents.
3. Groups: rank 0 joins the pairs to groups. Each group keeps a document of the first kind below that it has: of these
   the first one that is about as long as the longest. So of a text and its parts the whole one is kept.

All splits are compared, also if only one becomes shards. The order is: documents that have shards already (--against),
then --documents; of each the held-out split, validation, the train split; each in the order of the command line. So no
duplicate of a held-out document is trained on. Within one corpus, the duplicate in the later split is left out; between
corpora, the one in the later corpus, whichever split it is in.
"""

import hashlib
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.files.atomic import write_bytes, write_text
from common.files.checksums import FileEntry, describe_file
from data_prep.corpus.documents import SPLITS, VALIDATION, DocumentCounts, read_manifest
from data_prep.corpus.fingerprints import Method, bands, fingerprints_of, same
from data_prep.corpus.work_units import Corpus, WorkUnit, directory_name, open_corpus, read_column
from data_prep.mpi import Ledger, Ranks, UnitRecord

IntArray = NDArray[np.int64]

MAX_PART_DOCUMENTS = 1 << 22  # documents whose keys are sorted in one task
MAX_PAIRS_IN_MEMORY = 1 << 17  # pairs whose fingerprints are compared in one step
MIN_LENGTH_RATIO = 0.8  # of the kept document to the longest; a shorter one counts as a part


@dataclass(frozen=True)
class Comparison:
    """All documents that are compared, numbered from 0; the earlier of two duplicates is kept.

    Those numbered from `start` to `stop` - 1 become shards. Documents of an earlier kind are kept first.
    """

    units: list[WorkUnit]  # of all documents
    firsts: list[int]  # number of the first document of each unit, and at the end the number of documents
    method: Method
    precedence: list[int]  # number of the first document of each kind, and at the end the number of documents
    start: int
    stop: int
    digest: str  # hash of the contents of all documents


@dataclass(frozen=True)
class Duplicates:
    """Numbers of the documents that are left out, ascending, and for each the number of the kept duplicate."""

    removed: IntArray  # (R,)
    kept: IntArray  # (R,)

    def between(self, first: int, stop: int) -> IntArray:
        """Returns which of the documents `first` to `stop - 1` are left out."""
        return self.removed[np.searchsorted(self.removed, first) : np.searchsorted(self.removed, stop)]


NO_DUPLICATES = Duplicates(np.zeros(0, np.int64), np.zeros(0, np.int64))


def compare(
    directories: Sequence[Path], split: str, corpus: Corpus, against: Sequence[Path], method: Method
) -> Comparison:
    """Lists what to compare when `split` of `directories` becomes shards. UserError: a directory is in both lists.

    corpus: the documents that become shards, opened already. against: directories of documents that have shards.
    """
    twice = {path.resolve() for path in directories} & {path.resolve() for path in against}
    if twice:
        raise UserError(f"{min(twice)} is in --documents and in --against; name it once")
    kinds = [*itertools.product((against, directories), SPLITS)]
    own = kinds.index((directories, split), len(SPLITS))
    corpora = [corpus if place == own else open_split(*kind) for place, kind in enumerate(kinds)]
    digest = hashlib.sha256()
    for (_, kind), compared in zip(kinds, corpora):
        if compared.units or kind != VALIDATION:  # as earlier versions wrote it, without validation
            digest.update(f"{kind} {compared.digest}\n".encode())
    units = [unit for compared in corpora for unit in compared.units]
    firsts = [0, *itertools.accumulate(unit.documents for unit in units)]
    counts = [sum(unit.documents for unit in compared.units) for compared in corpora]
    precedence = [0, *itertools.accumulate(counts)]
    return Comparison(units, firsts, method, precedence, precedence[own], precedence[own + 1], digest.hexdigest())


def open_split(directories: Sequence[Path], split: str) -> Corpus:
    """Opens the documents of `split` in those directories that have some."""
    nothing = DocumentCounts()
    holding = [path for path in directories if read_manifest(path).counts.get(split, nothing).documents]
    return open_corpus(holding, split) if holding else Corpus([], [], "")


def find(ranks: Ranks, comparison: Comparison, scratch: Path) -> Duplicates:
    """Finds the duplicates among the documents that become shards. An interrupted run continues from `scratch`."""
    prints, pairs = Ledger(scratch / "fingerprints", UnitRecord), Ledger(scratch / "pairs", UnitRecord)
    for ledger in (prints, pairs):
        ledger.output.mkdir(exist_ok=True)
    sizes = [unit.text_bytes for unit in comparison.units]

    def write_fingerprints(index: int, unit: WorkUnit) -> UnitRecord:
        taken = fingerprints_of(read_column(unit, "text"), comparison.method)
        arrays: dict[str, NDArray] = taken._asdict() | {"keys": taken.keys.T}
        path = prints.output / f"{index:06d}"
        return UnitRecord(files=[write_array(Path(f"{path}.{name}.npy"), array) for name, array in arrays.items()])

    ranks.run(comparison.units, write_fingerprints, prints, sizes=sizes, description="fingerprints")
    parts = -(-comparison.firsts[-1] // MAX_PART_DOCUMENTS)
    tasks = [(band, part) for band in range(bands(comparison.method)) for part in range(parts)]

    def write_pairs(index: int, task: tuple[int, int]) -> UnitRecord:
        duplicates = equal_pairs(prints.output, comparison.firsts, *task, parts)
        return UnitRecord(files=[write_array(pairs.output / f"{index:06d}.npy", duplicates)])

    key_bytes = 8 * comparison.firsts[-1] // parts  # that each task reads
    ranks.run(tasks, write_pairs, pairs, sizes=[key_bytes] * len(tasks), description="pairs")

    def group() -> Duplicates:
        parents = np.arange(comparison.firsts[-1], dtype=np.int64)
        for index in range(len(tasks)):
            join(parents, np.load(pairs.output / f"{index:06d}.npy"))
        alike = np.flatnonzero(parents != np.arange(len(parents)))
        alike = np.union1d(alike, parents[alike])  # (D,) all documents of groups
        groups = np.unique(roots(parents, alike), return_inverse=True)[1]  # (D,)
        kinds = np.searchsorted(comparison.precedence, alike, side="right")  # (D,)
        (sizes,) = _gather(prints.output, comparison.firsts, alike, "sizes")
        kept = choose_kept(alike, groups, kinds, sizes)[groups]  # (D,)
        removed = (alike != kept) & (alike >= comparison.start) & (alike < comparison.stop)
        return Duplicates(alike[removed], kept[removed])

    return ranks.on_root(group)


def equal_pairs(directory: Path, firsts: Sequence[int], band: int, part: int, parts: int) -> IntArray:
    """Returns the pairs of duplicates, int64[P, 2], among documents that share a key in one part of one band.

    The documents with the same key are sorted by their keys in the next band, which puts similar ones side by side.
    Each is compared with the first and with the one before it. That joins all documents of a large bucket if they are
    one text. Duplicates that one band does not join are joined by another.
    """
    own_keys, next_keys, numbers = [], [], []
    for index, first in enumerate(firsts[:-1]):
        keys = np.load(directory / f"{index:06d}.keys.npy", mmap_mode="r")
        here = np.flatnonzero(keys[band] % np.uint64(parts) == part)
        own_keys.append(keys[band][here])
        next_keys.append(keys[(band + 1) % len(keys)][here])
        numbers.append(here + first)
    key, number = np.concatenate(own_keys), np.concatenate(numbers)  # (D,) each
    order = np.lexsort((np.concatenate(next_keys), key))  # by the key, then by the next band's
    key, number = key[order], number[order]
    begins = np.append(True, key[1:] != key[:-1])[: len(key)]  # (D,) whether a bucket, documents of one key, begins
    follows = np.flatnonzero(~begins)  # (F,) the documents behind the first of their bucket
    leaders = np.maximum.accumulate(np.where(begins, np.arange(len(key)), 0))[follows]  # (F,) that first one
    others = np.concatenate([number[leaders], number[follows - 1]])  # (2 F,)
    pairs = np.sort(np.stack([others, np.tile(number[follows], 2)], axis=1), axis=1)  # (2 F, 2)
    pairs = pairs[np.lexsort(pairs.T[::-1])]  # by the first, then by the second; much faster than np.unique
    pairs = pairs[np.append(True, (np.diff(pairs, axis=0) != 0).any(axis=1))[: len(pairs)]]  # (P, 2), each once
    blocks = np.split(pairs, range(MAX_PAIRS_IN_MEMORY, len(pairs), MAX_PAIRS_IN_MEMORY))
    return np.concatenate([block[_are_same(directory, firsts, block)] for block in blocks])


def _are_same(directory: Path, firsts: Sequence[int], pairs: IntArray) -> NDArray[np.bool_]:
    documents, places = np.unique(pairs, return_inverse=True)
    values, sizes = _gather(directory, firsts, documents, "values", "sizes")
    places = places.reshape(pairs.shape)
    return same(values[places], sizes[places])


def _gather(directory: Path, firsts: Sequence[int], documents: IntArray, *names: str) -> list[NDArray]:
    """Reads the arrays `names` of some documents (ascending numbers), in the same order."""
    gathered: list[list[NDArray]] = [[] for _ in names]
    bounds = np.searchsorted(documents, firsts)
    for index in range(len(firsts) - 1):
        here = documents[bounds[index] : bounds[index + 1]] - firsts[index]
        if len(here) or not index:  # without documents, the first file tells the dtype
            for name, taken in zip(names, gathered):
                taken.append(np.load(directory / f"{index:06d}.{name}.npy", mmap_mode="r")[here])
    return [np.concatenate(taken) for taken in gathered]


def choose_kept(documents: IntArray, groups: IntArray, kinds: IntArray, sizes: IntArray) -> IntArray:
    """Returns which document of each of G groups is kept, int64[G].

    It is of the earliest kind in its group and, of those, the first that is nearly as long as the longest. All
    arguments are int64[D]: numbers of documents, and the group (0 to G - 1), the kind and the size of each.
    """
    count = int(groups.max(initial=-1)) + 1
    earliest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(earliest, groups, kinds)
    eligible = kinds == earliest[groups]
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, groups[eligible], sizes[eligible])
    eligible &= sizes >= MIN_LENGTH_RATIO * longest[groups]
    stay = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(stay, groups[eligible], documents[eligible])
    return stay


def roots(parents: IntArray, documents: IntArray) -> IntArray:
    """Returns the first document of each document's group, and shortens the paths to it in `parents` (union-find).

    `parents` points from each document to an earlier one of its group, or to itself.
    """
    while True:
        above = parents[documents]
        top = parents[above]
        if (above == top).all():
            return above
        parents[documents] = top  # path halving


def join(parents: IntArray, pairs: IntArray) -> None:
    """Joins the groups of the two documents of each pair in `parents` (union-find on arrays)."""
    first, second = pairs.T
    while len(first):
        first, second = roots(parents, first), roots(parents, second)
        apart = first != second
        first, second = np.minimum(first, second)[apart], np.maximum(first, second)[apart]
        np.minimum.at(parents, second, first)


def write_names(path: Path, columns: Mapping[str, tuple[Sequence[WorkUnit], Sequence[int]]]) -> None:
    """Writes lines of JSON with directory and id of documents. columns: by key, (units, numbers counted over them)."""
    named = [_names_of(units, numbers) for units, numbers in columns.values()]
    lines = (json.dumps(dict(zip(columns, names)), ensure_ascii=False) for names in zip(*named))
    write_text(path, "".join(f"{line}\n" for line in lines))


def _names_of(units: Sequence[WorkUnit], numbers: Sequence[int]) -> list[tuple[str, str]]:
    names: dict[int, tuple[str, str]] = {}
    first, wanted = 0, set(numbers)
    for unit in units:
        of_unit = range(first, first + unit.documents)
        if not wanted.isdisjoint(of_unit):
            parts = ([directory_name(part.path.parent)] * part.count for part in unit.slices)
            directories = itertools.chain.from_iterable(parts)
            named = zip(of_unit, zip(directories, read_column(unit, "id")))
            names |= {number: name for number, name in named if number in wanted}
        first = of_unit.stop
    return [names[number] for number in numbers]


def write_array(path: Path, array: NDArray) -> FileEntry:
    """Writes `array` to a .npy file. Returns its entry for the ledger."""
    content = io.BytesIO()  # if np.save itself meets a full disk, its error does not tell
    np.save(content, np.ascontiguousarray(array))
    write_bytes(path, content.getbuffer())
    return describe_file(path)
