"""A corpus cut into units of work: fixed runs of documents of about equal size, whoever works on them."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.documents import list_parts, read_manifest
from data_prep.errors import UserError

# Text of a unit, in bytes: large enough that its last row and its files cost nothing, small enough that a few can be
# redone and that a rank stays far below 1 GB. A small corpus is cut into more units, so that several ranks share it.
MOST_BYTES, LEAST_BYTES, UNITS_WANTED = 32 << 20, 1 << 20, 64


@dataclass(frozen=True)
class Slice:
    """Documents `first` to `first + count` of one row group of a Parquet file."""

    path: Path
    row_group: int
    first: int
    count: int


@dataclass(frozen=True)
class Unit:
    """A run of consecutive documents.

    slices: where they lie. first_document: ordinal of the first one in the corpus. documents: how many.
    text_bytes: of their text, about.
    """

    slices: tuple[Slice, ...]
    first_document: int
    documents: int
    text_bytes: int


@dataclass(frozen=True)
class Corpus:
    """One split of one or more directories of documents.

    units: in the order of the documents. sources: by directory its name, the kind of collection, and its counts.
    digest: over the contents of all files, in hexadecimal: two corpora of one digest are the same.
    """

    units: list[Unit]
    sources: list[dict[str, object]]
    digest: str

    @property
    def text_bytes(self) -> int:
        """Bytes of text, about."""
        return sum(unit.text_bytes for unit in self.units)


def open_corpus(directories: Sequence[Path], split: str) -> Corpus:
    """Lists the documents of `split` and cuts them into units; reads the files' footers only.

    Raises:
        UserError: a directory is missing, incomplete or holds no document of the split.
    """
    sources: list[dict[str, object]] = []
    slices: list[tuple[Slice, int]] = []
    digest = hashlib.sha256()
    for directory in directories:
        manifest = read_manifest(directory)
        parts = list_parts(directory, split)
        counts = manifest.counts[split]
        sources.append(
            {
                "directory": directory.resolve().name,
                "source": manifest.source,
                "documents": counts.documents,
                "text_bytes": counts.text_bytes,
            }
        )
        checksums = {file.name: file.xxh3_128 for file in manifest.files}
        for part in parts:
            digest.update(f"{part.name} {checksums[part.name]}\n".encode())
            slices += _row_groups(part)
    if not slices:
        names = ", ".join(str(directory) for directory in directories)
        raise UserError(f"no documents in the {split} split of {names}; check what `extract` skipped")
    return Corpus(list(_units(slices)), sources, digest.hexdigest())


def _row_groups(path: Path) -> list[tuple[Slice, int]]:
    """Each row group of a file that is not empty, with the bytes of its text."""
    try:
        metadata = pq.read_metadata(path)
        column = metadata.schema.to_arrow_schema().get_field_index("text")
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a Parquet file of documents ({error}); extract them again") from error
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return [
        (Slice(path, index, 0, group.num_rows), group.column(column).total_uncompressed_size)
        for index, group in enumerate(groups)
        if group.num_rows
    ]


def _units(slices: list[tuple[Slice, int]]) -> Iterator[Unit]:
    """Cuts row groups that are too large, by number of documents, and joins small neighbours."""
    total = sum(size for _, size in slices)
    wanted = min(MOST_BYTES, max(LEAST_BYTES, total // UNITS_WANTED))
    gathered: list[Slice] = []
    ordinal = gathered_bytes = 0
    for group, size in slices:
        cuts = min(group.count, max(1, round(size / wanted)))
        bounds = [group.count * cut // cuts for cut in range(cuts + 1)]
        for first, stop in itertools.pairwise(bounds):
            gathered.append(Slice(group.path, group.row_group, first, stop - first))
            gathered_bytes += size * (stop - first) // group.count
            if gathered_bytes >= wanted * 3 // 4:
                yield _unit(gathered, ordinal, gathered_bytes)
                ordinal += sum(part.count for part in gathered)
                gathered, gathered_bytes = [], 0
    if gathered:
        yield _unit(gathered, ordinal, gathered_bytes)


def _unit(slices: list[Slice], first_document: int, text_bytes: int) -> Unit:
    return Unit(tuple(slices), first_document, sum(part.count for part in slices), text_bytes)


def read_texts(unit: Unit) -> Iterator[str]:
    """The text of each document of `unit` in order, with a row group in memory at a time. UserError: a damaged file."""
    return read_column(unit, "text")


def read_column(unit: Unit, name: str) -> Iterator[str]:
    """One column, "id", "title" or "text", of each document of `unit`, in the same way."""
    for part in unit.slices:
        try:
            with pq.ParquetFile(part.path) as file:
                column = file.read_row_group(part.row_group, columns=[name]).column(name)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{part.path} cannot be read ({error}); extract the documents again") from error
        yield from column.slice(part.first, part.count).to_pylist()
