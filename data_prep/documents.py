"""Documents: what every raw collection is turned into, and how they lie on disk.

A directory of documents holds `train-00000.parquet`, ... (and `held_out-00000.parquet`, ... where a part was held out),
one file of each split for each unit of work, and `documents.json`, which is written last and lists them.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from data_prep.atomic import replacing, write_text
from data_prep.errors import UserError

FORMAT_VERSION = 1
TRAIN, HELD_OUT = "train", "held_out"
SPLITS = (TRAIN, HELD_OUT)
MANIFEST = "documents.json"
SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string())])

# A row group is closed at this many characters of text: what a reader holds in memory at once.
_ROW_GROUP_CHARACTERS = 4 << 20
# Texts without a dictionary: where they repeat, the size of a row group would not be that of its texts, by which units
# of work are cut (data_prep/units.py).
_PARQUET: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "use_dictionary": ["title"]}
# Chosen once: with it 2, 5 and 10 % of the sample corpus are about 2, 5 and 11 % of its text. Never change it: it
# defines the split.
_HELD_OUT_SALT = b"held-out 83:"


@dataclass(frozen=True)
class Document:
    """One article, book or record.

    id: unique within its collection. title: may be empty. text: un-normalised prose, paragraphs separated by one "\\n".
    """

    id: str
    title: str
    text: str


@dataclass
class Counts:
    """What a set of documents amounts to; `text_bytes` in UTF-8, `words` by white space."""

    documents: int = 0
    words: int = 0
    text_bytes: int = 0

    def add(self, document: Document) -> None:
        """Counts one document more."""
        self.documents += 1
        self.words += len(document.text.split())
        self.text_bytes += len(document.text.encode())

    def merge(self, other: "Counts") -> None:
        """Adds what `other` counted."""
        self.documents += other.documents
        self.words += other.words
        self.text_bytes += other.text_bytes


@dataclass(frozen=True)
class PartFile:
    """One Parquet file: its name in the directory, size in bytes, xxh3_128 of its content, and rows."""

    name: str
    bytes: int
    xxh3_128: str
    documents: int


@dataclass
class DocumentsManifest:
    """What `documents.json` says.

    source: kind of the raw collection. inputs: what was read: name, size and fingerprint, or whatever identifies it.
    options: the flags that decide the output, the held-out fraction among them. counts: by split. raw_bytes: of the
    input, decompressed, before markup was taken off. skipped: by reason, {"count": int, "examples": [names]}. files:
    every part, in order.
    """

    source: str
    inputs: list[dict[str, Any]]
    options: dict[str, Any]
    counts: dict[str, Counts]
    raw_bytes: int
    skipped: dict[str, dict[str, Any]]
    files: list[PartFile] = field(default_factory=list)
    format_version: int = FORMAT_VERSION


def is_held_out(document_id: str, fraction: float) -> bool:
    """Whether a document belongs to the held-out split: a hash of its id alone, so neither order nor company matters.

    A larger fraction holds out a superset of what a smaller one does.
    """
    digest = hashlib.blake2b(_HELD_OUT_SALT + document_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2.0**64


def spelled(name: str) -> str:
    """A file's name as text that UTF-8 can hold: what it cannot ("caf\xe9" in Latin-1) is spelt "caf\\xe9"."""
    return os.fsencode(name).decode(errors="backslashreplace")


def part_name(split: str, index: int) -> str:
    """File name of the documents of unit `index` in `split`."""
    return f"{split}-{index:05d}.parquet"


class PartWriter:
    """One Parquet file that is being written, with a row group in memory at a time. From `writing_part`."""

    def __init__(self, name: str, writer: pq.ParquetWriter) -> None:
        self.name, self._writer = name, writer
        self._group: list[Document] = []
        self._characters = self._documents = 0
        self.file: PartFile | None = None  # once the part is complete

    def add(self, document: Document) -> None:
        """Appends a document."""
        self._group.append(document)
        self._characters += len(document.text)
        if self._characters >= _ROW_GROUP_CHARACTERS:
            self._close_group()

    def _close_group(self) -> None:
        if self._group:
            columns = [[getattr(document, name) for document in self._group] for name in SCHEMA.names]
            self._writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=len(self._group))
        self._documents += len(self._group)
        self._group, self._characters = [], 0

    def finish(self, path: Path) -> None:
        """Closes the file, which lies at `path` for now, and describes it in `file`."""
        self._close_group()
        self._writer.close()
        self.file = PartFile(self.name, path.stat().st_size, file_checksum(path), self._documents)


@contextlib.contextmanager
def writing_part(path: Path) -> Iterator[PartWriter]:
    """Writes one Parquet file (zstd), atomically; the same documents always give the same bytes."""
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, **_PARQUET) as writer,
    ):
        part = PartWriter(path.name, writer)
        yield part
        part.finish(temporary)


def write_part(path: Path, documents: Iterable[Document]) -> PartFile:
    """Writes documents to one Parquet file as `writing_part` does."""
    with writing_part(path) as part:
        for document in documents:
            part.add(document)
    assert part.file is not None
    return part.file


def read_part(path: Path) -> Iterator[Document]:
    """Documents of one Parquet file in order, a row group at a time. UserError: not a readable part."""
    try:
        with pq.ParquetFile(path) as file:
            for index in range(file.num_row_groups):
                table = file.read_row_group(index, columns=SCHEMA.names)
                columns = (table.column(name).to_pylist() for name in SCHEMA.names)
                yield from (Document(*row) for row in zip(*columns))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UserError(f"{path} cannot be read as documents ({error}); extract them again") from error


def list_parts(directory: Path, split: str = TRAIN) -> list[Path]:
    """The Parquet files of one split in order. UserError: not a complete directory of documents, or no such split."""
    manifest = read_manifest(directory)
    if split not in manifest.counts:
        raise UserError(
            f"{directory} has no {split} split; extract it again with --held-out FRACTION"
            if split == HELD_OUT
            else f"{directory} has no split called {split}; choose one of {', '.join(manifest.counts)}"
        )
    parts = [directory / file.name for file in manifest.files if file.name.startswith(f"{split}-")]
    for part, file in zip(parts, (f for f in manifest.files if f.name.startswith(f"{split}-"))):
        # The content, too: Parquet pages carry no checksum here, and a flipped bit would become other text.
        if not part.is_file() or part.stat().st_size != file.bytes or file_checksum(part) != file.xxh3_128:
            raise UserError(f"{part} is missing or has changed since it was extracted; extract {directory} again")
    return parts


def read_documents(directories: Sequence[Path], split: str = TRAIN) -> Iterator[Document]:
    """Every document of one split, directory after directory, in order, with a row group in memory at a time."""
    for part in [part for directory in directories for part in list_parts(directory, split)]:
        yield from read_part(part)


def write_manifest(directory: Path, manifest: DocumentsManifest) -> None:
    """Writes `documents.json`: the directory is complete from then on."""
    content = asdict(manifest)
    content["xxh3_128"] = content_checksum(content)
    write_text(directory / MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_manifest(directory: Path) -> DocumentsManifest:
    """Reads `documents.json`. UserError: missing, unreadable, or of another format version."""
    path = directory / MANIFEST
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; give one that `python -m data_prep extract` wrote")
    if not path.is_file():
        raise UserError(f"{directory} has no {MANIFEST}; run `python -m data_prep extract` to its end first")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format_version"]
        if version != FORMAT_VERSION:
            raise UserError(f"{path} has format version {version}, not {FORMAT_VERSION}; extract it again")
        checksum = content.pop("xxh3_128", None)  # older ones have none
        if checksum not in (None, content_checksum(content)):
            raise UserError(f"{path} is damaged (its checksum does not fit its content); extract it again")
        content["counts"] = {split: Counts(**counts) for split, counts in content["counts"].items()}
        content["files"] = [PartFile(**file) for file in content["files"]]
        return DocumentsManifest(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged ({error}); extract it again") from error


def file_checksum(path: Path) -> str:
    """xxh3_128 of a file's content, in hexadecimal."""
    checksum = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            checksum.update(block)
    return checksum.hexdigest()


def content_checksum(content: dict[str, Any]) -> str:
    """xxh3_128 of a manifest's content without its own checksum: finds a damaged manifest."""
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())
