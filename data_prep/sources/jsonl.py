"""Records with a field of text: JSON lines (.jsonl, .json, also .gz and .zst) and Parquet.

The first record of each file (a Parquet file's columns) is looked at before anything is written: where it has no text,
--text-field is wrong. A later record that cannot be read costs nothing but itself, damage of a compressed file the rest
of it, and of a Parquet file the rest of the row group.
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
import pyarrow.parquet as pq

from data_prep.documents import Document, spelled
from data_prep.errors import UserError
from data_prep.sources import Skipped, Source

_JSON = re.compile(r"\.(?:jsonl|json|ndjson)(?:\.(gz|zst|bz2))?$", re.IGNORECASE)
_PARQUET = re.compile(r"\.parquet$", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BATCH_ROWS = 256
_DAMAGE = (EOFError, OSError, UnicodeDecodeError, zlib.error, pa.ArrowException)  # what the readers raise for it


@dataclass(frozen=True)
class Fields:
    """Names of the fields (or columns) of a record. id and title may be missing in the data, or None: not asked for.

    per_document: as many consecutive records are one document, where a record is a sentence or a paragraph.
    """

    text: str = "text"
    id: str | None = None
    title: str | None = None
    per_document: int = 1


@dataclass(frozen=True)
class Part:
    """Lines that begin in bytes [begin, end) of a JSON file, or row groups [begin, end) of a Parquet file.

    name: path relative to the --input it was found under. A compressed file is one part, of bytes 0 to its size.
    """

    path: Path
    name: str
    begin: int
    end: int


class Records(Source):
    """Files of records. A `Source`; a unit is a run of lines, a compressed file or a run of Parquet row groups."""

    def __init__(self, paths: Sequence[Path], fields: Fields, unit_bytes: int) -> None:
        """UserError: a path is missing, holds no such file, or a Parquet file lacks a column."""
        super().__init__()
        self.fields = fields
        for file, name in [found for path in paths for found in find_files(path)]:
            size = self.add_file(file, name)
            if _PARQUET.search(name):
                self._plan_parquet(file, name, unit_bytes)
                continue
            check_first(file, fields)
            compressed = is_compressed(file)
            step = max(size, 1) if compressed else unit_bytes
            for begin in range(0, size, step):
                self.add(Part(file, name, begin, min(begin + step, size)), min(begin + step, size) - begin)

    def _plan_parquet(self, file: Path, name: str, unit_bytes: int) -> None:
        try:
            with pq.ParquetFile(file) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{file} is not a Parquet file ({error}); check --input") from error
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
                self.add(Part(file, name, begin, group + 1), size)
                begin, size = group + 1, 0

    def read(self, unit: Part) -> Iterator[Document | Skipped]:
        """The documents of a unit; its last one may be of fewer records than others."""
        records = self._read_parquet(unit) if _PARQUET.search(unit.name) else self._read_lines(unit)
        return joined(records, self.fields.per_document)

    def _read_lines(self, unit: Part) -> Iterator[Document | Skipped]:
        for offset, line in lines(unit):
            place = f"{unit.name}:{offset}"
            if line is None:
                yield Skipped(place, "damaged")
                continue
            self.consumed += len(line)
            if line.isspace():
                continue
            try:
                yield to_document(json.loads(line), self.fields, place)
            except (KeyError, TypeError):
                yield Skipped(place, "no text")
            except (ValueError, RecursionError):
                yield Skipped(place, "not JSON")

    def _read_parquet(self, unit: Part) -> Iterator[Document | Skipped]:
        columns = [name for name in (self.fields.text, self.fields.id, self.fields.title) if name is not None]
        with pq.ParquetFile(unit.path) as parquet:
            for group in range(unit.begin, unit.end):
                row = 0
                try:
                    for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns):
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
    """The files of records that `path` means, with their names relative to it, in the order of the names."""
    if path.is_file():
        return [(path, spelled(path.name))]
    if not path.is_dir():
        raise UserError(f"{path} does not exist; give a .jsonl, .jsonl.gz, .jsonl.zst or .parquet file, or a directory")
    found = [
        file for file in path.rglob("*") if file.is_file() and (_JSON.search(file.name) or _PARQUET.search(file.name))
    ]
    if not found:
        raise UserError(f"{path} holds no .jsonl, .jsonl.gz, .jsonl.zst or .parquet file; check --input")
    return sorted(((file, spelled(file.relative_to(path).as_posix())) for file in found), key=lambda entry: entry[1])


def check_first(path: Path, fields: Fields) -> None:
    """UserError unless the first record of a file of lines has a text."""
    size = max(1, path.stat().st_size)
    for number, (_, line) in enumerate(lines(Part(path, path.name, 0, size)), 1):
        if line is None:
            raise UserError(f"{path} is damaged or cut off; get it again")
        if line.isspace():
            continue
        try:
            to_document(json.loads(line), fields, path.name)
            return
        except (KeyError, TypeError) as error:
            raise UserError(f"{path}, line {number} has no text in {error}; check --text-field") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number} is not JSON ({error}); mend it or check --source") from error


def is_of_the_system(error: BaseException) -> bool:
    """Whether an error says that a file could not be read at this time, not that its content is damaged."""
    return isinstance(error, OSError) and error.errno is not None


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def to_document(record: Any, fields: Fields, place: str) -> Document | Skipped:
    """A record as a document; `place` is its id where it has none of its own. KeyError, TypeError: no text in it."""
    if not isinstance(record, dict) or fields.text not in record:
        raise KeyError(fields.text)
    text = record[fields.text]
    if text is None:
        return Skipped(place, "no text")
    if not isinstance(text, str):
        raise TypeError(f"{fields.text!r}: it holds {type(text).__name__}, not a string")
    identity = record.get(fields.id) if fields.id is not None else None
    title = record.get(fields.title) if fields.title is not None else None
    paragraphs = (" ".join(line.split()) for line in _encodable(text).splitlines())
    prose = "\n".join(paragraph for paragraph in paragraphs if paragraph)
    if not prose:
        return Skipped(place, "no text")
    name = place if identity is None else _encodable(str(identity))
    return Document(name, "" if title is None else _encodable(str(title)), prose)


def joined(records: Iterator[Document | Skipped], count: int) -> Iterator[Document | Skipped]:
    """Makes one document of each `count` consecutive records, a paragraph each, with the first one's id and title."""
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
    """`text` with halves of characters outside the BMP, which JSON can spell alone ("\\ud83d"), joined or replaced."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_compressed(path: Path) -> bool:
    """Whether a file cannot be entered in the middle."""
    match = _JSON.search(path.name)
    return bool(match and match[1])


def open_text(path: Path) -> BinaryIO:
    """A file of lines, decompressed by its suffix."""
    match = _JSON.search(path.name)
    suffix = (match[1] or "").lower() if match else ""
    if suffix == "gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if suffix == "bz2":
        return bz2.open(path, "rb")  # type: ignore[return-value]
    if suffix == "zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
    return path.open("rb")


def lines(part: Part) -> Iterator[tuple[int, bytes | None]]:
    """(offset, line) of the lines that begin in the part; the offset counts decompressed bytes.

    None stands for what follows where the file is damaged.
    """
    whole = is_compressed(part.path)
    with open_text(part.path) as file:
        offset = 0
        if part.begin and not whole:
            file.seek(part.begin - 1)
            offset = part.begin - 1 + len(file.readline())  # the line that began before; a line break alone if none did
        try:
            while whole or offset < part.end:
                line = file.readline()
                if not line:
                    return
                yield offset, line
                offset += len(line)
        except _DAMAGE as error:
            if is_of_the_system(error):
                raise
            yield offset, None
