"""Records with a field of text: JSON lines (.jsonl, .json, also .gz, .bz2 and .zst) and Parquet.

The first record of each file (of Parquet, the columns) is checked before anything is written. If it has no text,
--text-field is wrong. Later errors lose as little as possible. A record that cannot be read is skipped. Damage in a
compressed file loses the rest of the file. Damage in a Parquet file loses the rest of the row group.
"""

import bz2
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from common.errors import UserError, one_line
from data_prep.corpus.documents import Document, parquet_file, spelled
from data_prep.sources import Skipped, Source, files_below, planning

_JSON = re.compile(r"\.(?:jsonl|json|ndjson)(?:\.(gz|zst|bz2))?$", re.IGNORECASE)
_PARQUET = re.compile(r"\.parquet$", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ROWS_PER_READ = 256
MAX_LINE_BYTES = 64 << 20
"""A longer record is no document; all of Shakespeare has 5 MB. A compressed file of a few kB can hold many GB."""
_DAMAGE = (
    EOFError,
    OSError,
    UnicodeDecodeError,
    zlib.error,
    pa.ArrowException,
)  # what the readers raise for damaged content


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
        self.fields = fields
        files = [file for path in paths for file in find_files(path)]
        with planning(len(files)) as progress:
            for file, name in files:
                self._plan_file(file, name, unit_bytes)
                progress.update()

    def _plan_file(self, file: Path, name: str, unit_bytes: int) -> None:
        size = self.add_file(file, name)
        if _PARQUET.search(name):
            self._plan_parquet(file, name, unit_bytes)
            return
        check_first(file, self.fields)
        step = max(size, 1) if is_compressed(file) else unit_bytes
        for begin in range(0, size, step):
            self.add(FileRange(file, name, begin, min(begin + step, size)), min(begin + step, size) - begin)

    def _plan_parquet(self, file: Path, name: str, unit_bytes: int) -> None:
        try:
            with parquet_file(file) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{file} is not a Parquet file ({one_line(error)}); check --input") from error
        wanted = [self.fields.text, self.fields.id, self.fields.title]
        for column in wanted:
            if column is not None and column not in schema.names:
                raise UserError(f"{file} has no column {column!r}; choose --text-field among {', '.join(schema.names)}")
        if not _holds_text(kind := schema.field(self.fields.text).type):
            raise UserError(f"{file}: column {self.fields.text!r} holds {kind}, not text; choose another --text-field")
        begin = size = 0
        for group in range(metadata.num_row_groups):
            size += metadata.row_group(group).total_byte_size
            if size >= unit_bytes or group == metadata.num_row_groups - 1:
                self.add(FileRange(file, name, begin, group + 1), size)
                begin, size = group + 1, 0

    def read(self, unit: FileRange) -> Iterator[Document | Skipped]:
        """Yields the documents of a work unit. The last one may consist of fewer records."""
        records = self._read_parquet(unit) if _PARQUET.search(unit.name) else self._read_lines(unit)
        return joined(records, self.fields.per_document)

    def _read_lines(self, unit: FileRange) -> Iterator[Document | Skipped]:
        for offset, line in lines(unit):
            place = f"{unit.name}:{offset}"
            if line is None:
                yield Skipped(place, "damaged")
                continue
            self.consumed += len(line)
            if len(line) > MAX_LINE_BYTES:
                yield Skipped(place, "too long")
                continue
            if line.isspace():
                continue
            try:
                yield to_document(json.loads(line), self.fields, place)
            except (KeyError, TypeError):
                yield Skipped(place, "no text")
            except (ValueError, RecursionError):
                yield Skipped(place, "not JSON")

    def _read_parquet(self, unit: FileRange) -> Iterator[Document | Skipped]:
        columns = [name for name in (self.fields.text, self.fields.id, self.fields.title) if name is not None]
        with parquet_file(unit.path) as parquet:
            for group in range(unit.begin, unit.end):
                row = 0
                try:
                    for batch in parquet.iter_batches(_ROWS_PER_READ, row_groups=[group], columns=columns):
                        for record in batch.to_pylist():
                            document = to_document(record, self.fields, f"{unit.name}:{group}:{row}")
                            self.consumed += len(document.text.encode()) if isinstance(document, Document) else 0
                            yield document
                            row += 1
                except _DAMAGE as error:
                    if is_of_the_system(error):
                        raise
                    yield Skipped(f"{unit.name}:{group}:{row}", "damaged")


def find_files(path: Path) -> list[tuple[Path, str]]:
    """Returns the files of records at `path`, with their names relative to it, in the order of the names."""
    if path.is_file():
        return [(path, spelled(path.name))]
    if not path.is_dir():
        raise UserError(f"{path} does not exist; give a .jsonl, .jsonl.gz, .jsonl.zst or .parquet file, or a directory")
    files = files_below(path, lambda name: _JSON.search(name) or _PARQUET.search(name))
    if not files:
        raise UserError(f"{path} holds no .jsonl, .jsonl.gz, .jsonl.zst or .parquet file; check --input")
    return [(Path(file), name) for file, name in files]


def check_first(path: Path, fields: Fields) -> None:
    """Raises UserError unless the first record of a file of lines has a text."""
    size = max(1, path.stat().st_size)
    for number, (_, line) in enumerate(lines(FileRange(path, path.name, 0, size)), 1):
        if line is None:
            raise UserError(f"{path} is damaged or cut off; get it again")
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"{path}, line {number} has more than {MAX_LINE_BYTES:,} bytes; one record is one document")
        if line.isspace():
            continue
        try:
            to_document(json.loads(line), fields, path.name)
            return
        except (KeyError, TypeError) as error:
            raise UserError(f"{path}, line {number} has no text in {error}; check --text-field") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number} is not JSON ({error}); correct it or check --source") from error


def is_of_the_system(error: BaseException) -> bool:
    """Tells whether an error is a failure of the system to read a file; other errors mean damaged content."""
    return isinstance(error, OSError) and error.errno is not None


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def to_document(record: Any, fields: Fields, place: str) -> Document | Skipped:
    """Returns a record as a document, with the id `place` if it has none. KeyError, TypeError: it has no text."""
    if not isinstance(record, dict) or fields.text not in record:
        raise KeyError(fields.text)
    text = record[fields.text]
    if text is None:
        return Skipped(place, "no text")
    if not isinstance(text, str):
        raise TypeError(f"{fields.text!r}: it holds {type(text).__name__}, not a string")
    if len(text) > MAX_LINE_BYTES:  # a record of Parquet or of the hub
        return Skipped(place, "too long")
    identity = record.get(fields.id) if fields.id is not None else None
    title = record.get(fields.title) if fields.title is not None else None
    paragraphs = (" ".join(line.split()) for line in _encodable(text).splitlines())
    prose = "\n".join(paragraph for paragraph in paragraphs if paragraph)
    if not prose:
        return Skipped(place, "no text")
    name = place if identity is None else _encodable(str(identity))
    return Document(name, "" if title is None else _encodable(str(title)), prose)


def joined(records: Iterator[Document | Skipped], count: int) -> Iterator[Document | Skipped]:
    """Joins each `count` consecutive records, one paragraph each, to a document with the first one's id and title."""
    waiting: list[Document] = []
    for record in records:
        if isinstance(record, Skipped):
            yield record
            continue
        waiting.append(record)
        if len(waiting) == count:
            yield replace(waiting[0], text="\n".join(part.text for part in waiting))
            waiting = []
    if waiting:
        yield replace(waiting[0], text="\n".join(part.text for part in waiting))


def _encodable(text: str) -> str:
    """Joins surrogate pairs in `text`, and replaces single surrogates, which JSON allows ("\\ud83d")."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_compressed(path: Path) -> bool:
    """Tells whether a file is compressed, so that it can only be read from its start."""
    match = _JSON.search(path.name)
    return bool(match and match[1])


def open_text(path: Path) -> BinaryIO:
    """Opens a file of lines, decompressed according to its suffix."""
    match = _JSON.search(path.name)
    suffix = (match[1] or "").lower() if match else ""
    if suffix == "gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if suffix == "bz2":
        return bz2.open(path, "rb")  # type: ignore[return-value]
    if suffix == "zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
    return path.open("rb")


def _next_line(file: BinaryIO) -> tuple[bytes, int]:
    """Reads a line. Returns at most its first MAX_LINE_BYTES + 1 bytes, and its size."""
    line = file.readline(MAX_LINE_BYTES + 1)
    size = len(line)
    if size > MAX_LINE_BYTES:
        end = line[-1:]
        while end != b"\n" and (rest := file.readline(1 << 20)):
            size, end = size + len(rest), rest[-1:]
    return line, size


def lines(part: FileRange) -> Iterator[tuple[int, bytes | None]]:
    """Yields (offset, line) for the lines that begin in the range. The offset counts decompressed bytes.

    Of a line of more than MAX_LINE_BYTES it yields a beginning that is longer than that. At damaged content it yields
    None as the line, and ends.
    """
    whole = is_compressed(part.path)
    with open_text(part.path) as file:
        offset = 0
        if part.begin and not whole:
            file.seek(part.begin - 1)
            offset = part.begin - 1 + _next_line(file)[1]  # skips the rest of the line that began before the range
        try:
            while whole or offset < part.end:
                line, size = _next_line(file)
                if not line:
                    return
                yield offset, line
                offset += size
        except _DAMAGE as error:
            if is_of_the_system(error):
                raise
            yield offset, None
