"""Cuts a corpus into work units: runs of documents of about equal size, independent of the number of ranks."""

import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from common.errors import UserError
from data_prep.corpus.documents import TRAIN, list_parts, opened_part, read_manifest, spelled
from data_prep.text import ENGLISH

# Bytes of text in a work unit. A unit is large enough that its partly filled last row and its files cost little. It is
# small enough that a few can be repeated after an interruption, and that a rank needs far less than 1 GB.
MAX_UNIT_BYTES, MIN_UNIT_BYTES = 32 << 20, 1 << 20
TARGET_UNITS = 64  # a small corpus is cut into about this many, so that several ranks share it


@dataclass(frozen=True)
class RowGroupSlice:
    """Documents `first` to `first + count - 1` of one row group of a Parquet file, in one language."""

    path: Path
    row_group: int
    first: int
    count: int
    text_bytes: int  # approximately
    language: str = ENGLISH


@dataclass(frozen=True)
class WorkUnit:
    """A run of consecutive documents."""

    slices: tuple[RowGroupSlice, ...]  # where they are stored
    first_document: int  # its ordinal in the corpus

    @property
    def documents(self) -> int:
        """Number of documents."""
        return sum(part.count for part in self.slices)

    @property
    def text_bytes(self) -> int:
        """Approximate size of the text."""
        return sum(part.text_bytes for part in self.slices)


@dataclass(frozen=True)
class Corpus:
    """One split of one or more directories of documents."""

    units: list[WorkUnit]  # in the order of the documents
    sources: list[dict[str, object]]  # for each directory its name, the kind of collection, and its counts
    digest: str  # hash over the contents of all files, in hexadecimal. Corpora with the same digest are equal.
    language: str = ENGLISH  # codes of the languages of the documents, in order and separated by a comma


def open_corpus(directories: Sequence[Path], split: str, language: str | None = None) -> Corpus:
    """Lists the documents of `split` and cuts them into work units. Decodes only the footers of the files.

    language: code of the language of all documents; by default what the manifest of each directory says.
    UserError: a directory is given twice, missing, incomplete or holds no document of the split.
    """
    languages, places, sources = set[str](), set[Path](), list[dict[str, object]]()
    groups, digest = list[RowGroupSlice](), hashlib.sha256()
    for directory in directories:
        if directory.resolve() in places:
            raise UserError(f"{directory} is given twice, and its documents would count double; name it once")
        places.add(directory.resolve())
        manifest = read_manifest(directory)
        languages.add(spoken := language or manifest.language)
        parts = list_parts(directory, manifest, split)
        counts, name = manifest.counts[split], directory_name(directory)
        sizes = {"documents": counts.documents, "text_bytes": counts.text_bytes}
        sources.append({"directory": name, "source": manifest.source, **sizes})
        own: list[RowGroupSlice] = []
        for part, file in parts.items():
            digest.update(f"{part.name} {file.xxh3_128}\n".encode())
            own += _row_groups(part, spoken)
        if (read_count := sum(group.count for group in own)) != counts.documents:
            fault = f"{directory} holds {read_count} documents in {split}, but its manifest says {counts.documents}"
            raise UserError(f"{fault}; extract them again")
        groups += own
    if not groups:
        names = ", ".join(str(directory) for directory in directories)
        remedy = "check what `extract` skipped" if split == TRAIN else "`extract` with a larger fraction"
        raise UserError(f"no documents in the {split} split of {names}; {remedy}")
    return Corpus(list(_units(groups)), sources, digest.hexdigest(), ",".join(sorted(languages)))


def directory_name(directory: Path) -> str:
    """Returns the name of a directory of documents, as valid UTF-8 text, however its path is written."""
    return spelled(directory.resolve().name)


def _row_groups(path: Path, language: str) -> list[RowGroupSlice]:
    with opened_part(path) as file:
        column = file.schema_arrow.get_field_index("text")
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    return [
        RowGroupSlice(path, index, 0, group.num_rows, group.column(column).total_uncompressed_size, language)
        for index, group in enumerate(groups)
        if group.num_rows
    ]


def _units(groups: list[RowGroupSlice]) -> Iterator[WorkUnit]:
    """Splits large row groups by number of documents, and joins small neighbours."""
    wanted = min(MAX_UNIT_BYTES, max(MIN_UNIT_BYTES, sum(group.text_bytes for group in groups) // TARGET_UNITS))
    unit = WorkUnit((), 0)
    for group in groups:
        cuts = min(group.count, max(1, round(group.text_bytes / wanted)))
        bounds = [group.count * cut // cuts for cut in range(cuts + 1)]
        for first, stop in itertools.pairwise(bounds):
            size = group.text_bytes * (stop - first) // group.count
            part = replace(group, first=first, count=stop - first, text_bytes=size)
            unit = WorkUnit((*unit.slices, part), unit.first_document)
            if unit.text_bytes >= wanted * 3 // 4:
                yield unit
                unit = WorkUnit((), unit.first_document + unit.documents)
    if unit.slices:
        yield unit


def read_texts_with_language(unit: WorkUnit) -> Iterator[tuple[str, str]]:
    """Yields (text, code of its language) of each document, as `read_column` does."""
    languages = itertools.chain.from_iterable(itertools.repeat(part.language, part.count) for part in unit.slices)
    yield from zip(read_column(unit, "text"), languages, strict=True)


def read_column(unit: WorkUnit, name: str) -> Iterator[str]:
    """Yields one column ("id", "title" or "text") of each document in order, with a row group in memory, or two.

    UserError: a file is damaged.
    """
    for part in unit.slices:
        changed = part.path.stat().st_mtime_ns if part.path.exists() else 0
        yield from _read_row_group(part.path, changed, part.row_group, name)[part.first : part.first + part.count]


@functools.lru_cache(maxsize=1)  # units that follow each other are often parts of one row group
def _read_row_group(path: Path, changed: int, row_group: int, name: str) -> list[str]:
    with opened_part(path) as file:
        return file.read_row_group(row_group, columns=[name]).column(name).to_pylist()
