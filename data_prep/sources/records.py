"""Records with a field of text: JSON lines (.jsonl, .json, also .gz, .bz2 and .zst), Parquet, and datasets of the hub.

The first record of each file (of Parquet and the hub, the columns) is checked before anything is written. If it has no
text, --text-field is wrong. Later errors lose as little as possible. A record that cannot be read is skipped. Damage in
a compressed file loses the rest of the file. Damage in a Parquet file loses the rest of the row group.
"""

import bz2
import contextlib
import gzip
import io
import itertools
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from common.errors import UserError, one_line
from data_prep.corpus.documents import Document, parquet_file
from data_prep.sources import Skipped, Source, find_files

_FILE = re.compile(r"\.(?:(?:jsonl|json|ndjson)(?:\.(gz|zst|bz2))?|parquet)$", re.IGNORECASE)
_PARQUET = re.compile(r"\.parquet$", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ROWS_PER_READ = 256
MAX_LINE_BYTES = 64 << 20
"""A longer record is no document; all of Shakespeare has 5 MB. A compressed file of a few kB can hold many GB."""
MAX_RATIO = 1000
"""Bytes of content for each byte of a compressed file, beside MAX_LINE_BYTES. Text has up to 20."""
MAX_BLANK_LINES = 1_000_000
"""Empty lines one after another. More are no text, and take long."""
EMPTY = "no text"
MAX_NAMES_SHOWN = 20
# What the readers raise for damaged content.
_DAMAGE = (EOFError, OSError, UnicodeDecodeError, zlib.error, pa.ArrowException)


@dataclass(frozen=True)
class Fields:
    """How records become documents.

    Attributes:
        text, id, title: names of the fields (or columns). id and title may be missing in a record; None ignores them.
        per_document: number of consecutive records in one document, for records that are sentences or paragraphs.
    """

    text: str = "text"
    id: str | None = None
    title: str | None = None
    per_document: int = 1

    @property
    def columns(self) -> list[str]:
        """The names that are read."""
        return [name for name in (self.text, self.id, self.title) if name is not None]

    def check_columns(self, place: str, columns: Sequence[str]) -> None:
        """Raises UserError unless the columns of a file or dataset have all names."""
        for column in self.columns:
            if (times := columns.count(column)) != 1:
                shown = ", ".join(columns[:MAX_NAMES_SHOWN])
                raise UserError(f"{place} has {times} columns called {column!r}; choose --text-field among {shown}")


@dataclass(frozen=True)
class FileRange:
    """The lines that begin in bytes [begin, end) of a JSON file, or the row groups [begin, end) of a Parquet file.

    A compressed file is one range, from 0 to its size. name: path relative to the --input that contains it.
    """

    path: Path
    name: str
    begin: int
    end: int


class Records(Source):
    """A `Source`: files of records. A work unit is a `FileRange`."""

    def __init__(self, paths: Sequence[Path], fields: Fields, unit_bytes: int) -> None:
        """UserError: a path is missing or contains no such file, or a Parquet file lacks a column."""
        super().__init__()
        self.fields, self._unit_bytes = fields, unit_bytes
        kind = ".jsonl, .jsonl.gz, .jsonl.zst or .parquet file"
        self.plan([file for path in paths for file in find_files(path, _FILE.search, kind)])

    def plan_file(self, path: Path, name: str, size: int) -> None:
        """Cuts a file into ranges of lines or of row groups."""
        if _PARQUET.search(name):
            self._plan_parquet(path, name)
            return
        check_first(path, self.fields)
        step = max(size, 1) if compression(path) else self._unit_bytes
        for begin in range(0, size, step):
            self.add(FileRange(path, name, begin, min(begin + step, size)), min(step, size - begin))

    def _plan_parquet(self, path: Path, name: str) -> None:
        try:
            with parquet_file(path) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path} is not a Parquet file ({one_line(error)}); check --input") from error
        self.fields.check_columns(str(path), schema.names)
        kind = schema.field(self.fields.text).type
        if not re.search("string", str(kind)):
            raise UserError(f"{path}: column {self.fields.text!r} holds {kind}, not text; choose another --text-field")
        begin = size = 0
        for group in range(metadata.num_row_groups):
            size += metadata.row_group(group).total_byte_size
            if size >= self._unit_bytes or group == metadata.num_row_groups - 1:
                self.add(FileRange(path, name, begin, group + 1), size)
                begin, size = group + 1, 0

    def read(self, unit: FileRange) -> Iterator[Document | Skipped]:
        """Yields the documents of a work unit. The last one may consist of fewer records."""
        records = self._read_parquet(unit) if _PARQUET.search(unit.name) else self._read_lines(unit)
        return joined(records, self.fields.per_document)

    def _read_lines(self, unit: FileRange) -> Iterator[Document | Skipped]:
        for offset, line in lines(unit):
            self.consumed += len(line or b"")
            if line is None or not line.isspace():
                yield parse_line(line, self.fields, f"{unit.name}:{offset}")

    def _read_parquet(self, unit: FileRange) -> Iterator[Document | Skipped]:
        with parquet_file(unit.path) as parquet:
            for group in range(unit.begin, unit.end):
                row = 0
                try:
                    for batch in parquet.iter_batches(_ROWS_PER_READ, row_groups=[group], columns=self.fields.columns):
                        for record in batch.to_pylist():
                            item = to_document(record, self.fields, f"{unit.name}:{group}:{row}")
                            self.consumed += len(item.text.encode()) if isinstance(item, Document) else 0
                            yield item
                            row += 1
                except _DAMAGE as error:
                    if is_of_the_system(error):
                        raise
                    yield Skipped(f"{unit.name}:{group}:{row}", "damaged")


class Hub(Source):
    """A `Source`: a split of datasets that `datasets.load_dataset` reads, by name or from a local directory, streamed.

    A work unit is (name of the dataset, one of its shards).
    """

    def __init__(self, names: Sequence[str], subset: str | None, split: str, fields: Fields) -> None:
        """UserError: a dataset cannot be opened (with the library's reason), or has no such split or field."""
        super().__init__()
        self.subset, self.split, self.fields = subset, split, fields
        for name in names:
            dataset = self._open(name)
            with _explaining(name):
                columns = dataset.column_names or list(next(iter(dataset), {}))
            fields.check_columns(name, columns)
            info = dataset.info.splits.get(split) if dataset.info.splits else None
            local = [file.stat().st_size for file in Path(name).rglob("*") if file.is_file()]  # none of the hub's
            total, shards = (info.num_bytes if info else 0) or sum(local), dataset.num_shards
            self.inputs.append({"name": name, "subset": subset, "split": split, "shards": shards, "bytes": total})
            for shard in range(shards):
                self.add((name, shard), max(1, total // shards))

    def _open(self, name: str) -> Any:
        """Returns the streamed dataset (`datasets.IterableDataset`)."""
        from datasets import load_dataset  # takes seconds to import, and only this source needs it
        from datasets.utils.logging import disable_progress_bar

        disable_progress_bar()
        with _explaining(name):
            return load_dataset(name, self.subset, split=self.split, streaming=True)

    def read(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        """Yields the documents of one shard."""
        return joined(self._read_rows(unit), self.fields.per_document)

    def _read_rows(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        name, shard = unit
        dataset = self._open(name)
        # The ids of a local dataset do not depend on the way its path is written.
        short = Path(name).resolve().name if Path(name).exists() else name
        rows = enumerate(dataset.shard(num_shards=dataset.num_shards, index=shard))
        while True:
            with _explaining(name):
                row, record = next(rows, (0, None))
            if record is None:
                return
            item = to_document(record, self.fields, f"{short}:{shard}:{row}")
            self.consumed += len(item.text.encode()) if isinstance(item, Document) else 0
            yield item


@contextlib.contextmanager
def _explaining(name: str) -> Iterator[None]:
    """Raises UserError for any error: the library passes on those of its readers and of the network."""
    try:
        yield
    except Exception as error:
        raise UserError(
            f"cannot read the dataset {name!r}: {one_line(error)}; "
            "check --input, --subset, --hub-split, its files and the network, and give the same command to go on"
        ) from error


def check_first(path: Path, fields: Fields) -> None:
    """Raises UserError unless the first record of a file of lines can have a text."""
    size = max(1, path.stat().st_size)
    for number, (_, line) in enumerate(lines(FileRange(path, path.name, 0, size)), 1):
        if line is None or not line.isspace():
            item = parse_line(line, fields, path.name)
            if isinstance(item, Skipped) and item.reason != EMPTY:
                raise UserError(f"{path}, line {number}: {item.reason}; check --input, --source and --text-field")
            return


def parse_line(line: bytes | None, fields: Fields, place: str) -> Document | Skipped:
    """Returns the document of one line of JSON; None: of damaged content."""
    if line is None or len(line) > MAX_LINE_BYTES:
        return Skipped(place, "damaged" if line is None else "too long")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return Skipped(place, "not JSON")
    return to_document(record, fields, place)


def to_document(record: Any, fields: Fields, place: str) -> Document | Skipped:
    """Returns a record as a document, with the id `place` if it has none."""
    text = record.get(fields.text, record) if isinstance(record, dict) else record
    if text is None:
        return Skipped(place, EMPTY)
    if not isinstance(text, str) or text is record:
        return Skipped(place, "no field of text")
    if len(text) > MAX_LINE_BYTES:  # a record of Parquet or of the hub
        return Skipped(place, "too long")
    paragraphs = (" ".join(line.split()) for line in _encodable(text).splitlines())
    prose = "\n".join(filter(None, paragraphs))
    if not prose:
        return Skipped(place, EMPTY)
    identity, title = (record.get(name) if name else None for name in (fields.id, fields.title))
    name = place if identity is None else _encodable(str(identity))
    return Document(name, "" if title is None else _encodable(str(title)), prose)


def joined(records: Iterator[Document | Skipped], count: int) -> Iterator[Document | Skipped]:
    """Joins each `count` consecutive records, one paragraph each, to a document with the first one's id and title."""
    waiting: list[Document] = []
    for record in itertools.chain(records, [None]):
        if isinstance(record, Skipped):
            yield record
        elif record is not None:
            waiting.append(record)
        if waiting and (record is None or len(waiting) == count):
            yield replace(waiting[0], text="\n".join(part.text for part in waiting))
            waiting = []


def _encodable(text: str) -> str:
    """Joins surrogate pairs in `text`, and replaces single surrogates, which JSON allows ("\\ud83d")."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def compression(path: Path) -> str:
    """Returns how a file is compressed: "gz", "zst", "bz2", or "" if it is not. Then it can be read from any byte."""
    match = _FILE.search(path.name)
    return (match[1] or "").lower() if match else ""


def open_text(path: Path) -> BinaryIO:
    """Opens a file of lines, decompressed according to its suffix."""
    kind = compression(path)
    if kind == "zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
    opener: Any = {"gz": gzip.open, "bz2": bz2.open, "": open}[kind]
    return opener(path, "rb")


def is_of_the_system(error: BaseException) -> bool:
    """Tells whether an error is a failure of the system to read a file; other errors mean damaged content."""
    return isinstance(error, OSError) and error.errno is not None


def lines(part: FileRange) -> Iterator[tuple[int, bytes | None]]:
    """Yields (offset, line) for the lines that begin in the range. The offset counts decompressed bytes.

    Of a line of more than MAX_LINE_BYTES it yields a beginning that is longer than that. At damaged content it yields
    None as the line, and ends; so it does at content that no records have: see MAX_RATIO and MAX_BLANK_LINES.
    """
    is_compressed = bool(compression(part.path))
    end = MAX_LINE_BYTES + MAX_RATIO * part.path.stat().st_size if is_compressed else part.end
    offset, is_start = max(0, part.begin - 1), part.begin == 0  # else the rest of the line before the range
    blank_lines = 0
    with open_text(part.path) as file:
        if offset:
            file.seek(offset)
        try:
            while offset < end and (line := file.readline(MAX_LINE_BYTES + 1 if is_start else 1 << 20)):
                blank_lines = blank_lines + 1 if line.isspace() else 0
                if blank_lines > MAX_BLANK_LINES:
                    break
                if is_start:
                    yield offset, line
                offset += len(line)
                is_start = line.endswith(b"\n")
        except _DAMAGE as error:
            if is_of_the_system(error):
                raise
            yield offset, None
            return
    if blank_lines > MAX_BLANK_LINES or (is_compressed and offset >= end):
        yield offset, None
