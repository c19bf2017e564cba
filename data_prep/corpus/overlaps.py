"""Finds documents that overlap with other texts: with held-out documents, and with the files of tasks (--not-in).

The other texts become an index of their runs of words. Then the documents are read once, each run is looked up, and a
document is left out in one of two cases:

- It is similar to a held-out document. `HELD_OUT_SHARE` of the shorter one's runs of 8 words are in the other; of texts
  of fewer than 1,000 such words, `SHORT_SHARE`. Words are compared by their consonants, as by `--dedup near`. So other
  editions are found, and, other than by `--dedup near`, parts of a text.
- It has one run of 13 words (--not-in-words) with a task file in common. These words are compared as they are, but for
  capitals, accents and punctuation.

Each Chinese or Japanese character is a word.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from common.files.atomic import write_text
from data_prep.corpus.dedup import names_of, write_array
from data_prep.corpus.fingerprints import LONG_TEXT, plain, skeleton
from data_prep.corpus.word_runs import RunReader, Runs
from data_prep.corpus.work_units import Corpus, read_texts

IntArray = NDArray[np.int64]

HELD_OUT_WORDS = 8
HELD_OUT_SHARE, SHORT_SHARE = 0.2, 0.5
MIN_COMMON = 16  # runs of a longer text


def _places(hashes: NDArray[np.uint64], table_bits: int) -> tuple[IntArray, NDArray[np.uint8]]:
    """Returns the byte of each hash in a table of 2**table_bits, by its first bits, and two bits there, by its last."""
    places = (hashes >> np.uint64(64 - table_bits)).view(np.int64)  # numpy copies indices that are not signed
    last, one, seven = hashes.astype(np.uint8), np.uint8(1), np.uint8(7)
    return places, one << (last & seven) | one << (last >> np.uint8(3) & seven)


class Index(NamedTuple):
    """The runs of the other texts.

    Attributes:
        hashes: uint64[K], different ones, in order.
        owners: int32[K], the number of the text, or file, that each is from; of several the first.
        sizes: int64[O], the runs of each owner.
        occupied: uint8[2**b], a table of bits that are set for those in `hashes`, and for about one in 100 others.
    """

    hashes: NDArray[np.uint64]
    owners: NDArray[np.int32]
    sizes: IntArray
    occupied: NDArray[np.uint8]

    @classmethod
    def of(cls, runs: Runs, owner_of: IntArray | None = None) -> "Index":
        """Makes the index of runs; `owner_of` maps the numbers of their texts to owners (None: they are owners)."""
        hashes = np.concatenate([np.zeros(0, np.uint64), *runs.hashes])
        texts, inside = runs.texts_of(np.arange(len(hashes)))
        owners = texts[inside] if owner_of is None else owner_of[texts[inside]]
        sizes = np.bincount(owners)
        hashes = hashes[inside]
        order = np.argsort(hashes)  # much faster than np.unique, which needs a stable one
        ordered = hashes[order]
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(order)])  # of equal hashes
        hashes, places = ordered[begins], np.minimum.reduceat(order, begins)
        table_bits = max(10, len(hashes).bit_length() + 2)
        occupied = np.zeros(1 << table_bits, np.uint8)
        np.bitwise_or.at(occupied, *_places(hashes, table_bits))
        return cls(hashes, owners[places].astype(np.int32), sizes, occupied)

    def save(self, directory: Path) -> None:
        """Writes the arrays to files in `directory`."""
        directory.mkdir(exist_ok=True)
        for name, array in self._asdict().items():
            write_array(directory / f"{name}.npy", array)

    @classmethod
    def mapped(cls, directory: Path) -> "Index":
        """Maps what `save` wrote. The ranks of a host share this memory."""
        return cls(*(np.asarray(np.load(directory / f"{name}.npy", mmap_mode="r")) for name in cls._fields))

    def find(self, runs: Runs) -> tuple[IntArray, NDArray[np.int32]]:
        """Returns (text, owner) of each run that is in the index."""
        table_bits = len(self.occupied).bit_length() - 1
        numbers, owners, first = [np.zeros(0, np.int64)], [self.owners[:0]], 0
        for hashes in runs.hashes:
            places, bits = _places(hashes, table_bits)
            likely = np.flatnonzero(self.occupied.take(places) & bits == bits)
            wanted = hashes[likely]
            places = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
            equal = self.hashes[places] == wanted
            numbers.append(first + likely[equal])
            owners.append(self.owners[places[equal]])
            first += len(hashes)
        texts, inside = runs.texts_of(np.concatenate(numbers))
        return texts[inside], np.concatenate(owners)[inside]


@dataclass(frozen=True)
class Overlaps:
    """What documents must not overlap with.

    Attributes:
        held_out: the held-out documents; empty to compare with none.
        tasks: names of the task files.
        words: words in a run that a document must not have in common with a task file.
        task_files: where these files are.
        digest: of all this.
    """

    held_out: Corpus
    tasks: list[str]
    words: int
    task_files: list[Path]
    digest: str


def plan(held_out: Corpus, task_files: Sequence[tuple[Path, str]], words: int) -> Overlaps:
    """Returns what to compare with: held-out documents, and the paths and names of task files."""
    digest = hashlib.sha256(f"1 {held_out.digest} {words if task_files else 0}\n".encode())
    for file, name in task_files:
        digest.update(f"{name} {xxhash.xxh3_128_hexdigest(file.read_bytes())}\n".encode())
    paths, names = [file for file, _ in task_files], [name for _, name in task_files]
    return Overlaps(held_out, names, words, paths, digest.hexdigest())


@dataclass(frozen=True)
class Found:
    """The documents to leave out, by their numbers in the corpus, and for each the number of what it overlaps with."""

    similar: dict[int, int] = field(default_factory=dict)
    in_tasks: dict[int, int] = field(default_factory=dict)


def write_indices(overlaps: Overlaps, directory: Path, task_texts: Callable[[Path], Iterable[str]]) -> None:
    """Writes the indices of the other texts, which `Search` reads. task_texts: reads the texts of a task file."""
    owners, texts = [0], [""]
    for owner, path in enumerate(overlaps.task_files):
        of_file = list(task_texts(path))
        texts += of_file
        owners += [owner] * len(of_file)
    held_out = (text for unit in overlaps.held_out.units for text in read_texts(unit))
    Index.of(RunReader(HELD_OUT_WORDS, skeleton).read(held_out)).save(directory / "held_out")
    Index.of(RunReader(overlaps.words, plain).read(texts), np.array(owners)).save(directory / "tasks")


class Search:
    """Looks documents up in the indices that `write_indices` has written to `directory`."""

    def __init__(self, directory: Path, words: int) -> None:
        self._held_out, self._tasks = Index.mapped(directory / "held_out"), Index.mapped(directory / "tasks")
        self._skeletons, self._words = RunReader(HELD_OUT_WORDS, skeleton), RunReader(words, plain)

    def find(self, first: int, texts: Sequence[str]) -> Found:
        """Returns the documents that overlap with other texts, of which document `first` is the first of `texts`."""
        similar = most_similar(self._held_out, self._skeletons.read(texts)) if len(self._held_out.hashes) else {}
        in_tasks: dict[int, int] = {}
        if len(self._tasks.hashes):
            documents, owners = self._tasks.find(self._words.read(texts))
            in_tasks = dict(zip((first + documents)[::-1].tolist(), owners[::-1].tolist()))  # of several the first
        return Found({first + document: owner for document, owner in similar.items()}, in_tasks)


def write_names(path: Path, overlaps: Overlaps, corpus: Corpus, found: Found) -> None:
    """Writes a line of JSON for each document of `found`: directory and id, and those or the file it overlaps with."""
    names, owners = (
        names_of(units, np.unique(np.array([*numbers], np.int64)))
        for units, numbers in (
            (corpus.units, [*found.similar, *found.in_tasks]),
            (overlaps.held_out.units, found.similar.values()),
        )
    )
    lines: list[dict[str, object]] = [
        {"removed": names[document], "similar": owners[owner]} for document, owner in sorted(found.similar.items())
    ]
    for document, owner in sorted(found.in_tasks.items()):
        lines.append({"removed": names[document], "task_file": overlaps.tasks[owner]})
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def most_similar(index: Index, runs: Runs) -> dict[int, int]:
    """Returns the documents that are similar to an owner, and the number of the most similar one."""
    best: dict[int, tuple[float, int]] = {}
    documents, owners = index.find(runs)
    pairs, common = np.unique(documents * len(index.sizes) + owners, return_counts=True)
    documents, owners = np.divmod(pairs, len(index.sizes))  # (P,)
    own, others = runs.sizes[documents], index.sizes[owners]  # (P,) runs
    shorter = np.minimum(own, others)
    share = common / shorter
    least = np.where(shorter >= LONG_TEXT, HELD_OUT_SHARE, SHORT_SHARE)
    # A few words of a held-out document make no longer text similar to it.
    enough = (own <= others) | (common >= MIN_COMMON)
    for pair in np.flatnonzero((share >= least) & enough).tolist():
        document, owner = int(documents[pair]), int(owners[pair])
        best[document] = max(best.get(document, (0.0, 0)), (float(share[pair]), -owner))
    return {document: -owner for document, (_, owner) in sorted(best.items())}
