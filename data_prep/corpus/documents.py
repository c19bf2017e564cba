"""Documents and their format on disk: what `extract` makes of every raw collection.

A directory of documents holds `train-00000.parquet`, ... and, if a part was held out, `held_out-00000.parquet`, ... or
`validation-00000.parquet`, ...: one file for each split and work unit. `documents.json` is written last and lists them.
"""

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import UserError, one_line
from common.files import checksums
from common.files.atomic import replacing
from common.files.checksums import FileEntry, file_checksum
from common.files.json_files import Count
from common.files.places import open_regular
from data_prep.text import ENGLISH

FORMAT_VERSION = 2
TRAIN, HELD_OUT, VALIDATION = "train", "held_out", "validation"
SPLITS = (HELD_OUT, VALIDATION, TRAIN)  # in this order: of duplicates, that of the earlier split is kept
MANIFEST = "documents.json"
LANGUAGE = "language"  # the option that records the language
MAX_EXAMPLES = 5  # names of skipped input that a manifest lists for each reason
LISTED = re.compile(r"(?:train|held_out|validation)-\d{5,}\.parquet")  # the names of the files that a manifest lists
SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string())])

_READERS = 8  # threads that check files
# A row group is closed once it has this many characters of text. A reader holds one row group in memory.
_ROW_GROUP_CHARACTERS = 4 << 20
# No dictionary for texts: repeated texts would make a row group smaller than its texts, and work units are cut by that
# size (data_prep/corpus/work_units.py).
_PARQUET: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "use_dictionary": ["title"]}
# Never change it: it defines the split. It was chosen so that 2, 5 and 10 % of the documents of the sample corpus are
# about 2, 5 and 11 % of its text.
_HELD_OUT_SALT = b"held-out 83:"


@dataclass(frozen=True)
class Document:
    """One article, book or record."""

    id: str  # unique within its collection
    title: str  # may be empty
    text: str  # un-normalised prose; one "\n" separates paragraphs


# Scripts in which each character counts as a word: Thai to Tibetan, Burmese, Khmer; kana, Bopomofo; ideographs.
_NO_SPACES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3041-\u312f\u31a0-\u31ff\u3400-\u9fff\U00020000-\U0003ffff"
_OF_NO_SPACES, _WORD = re.compile(f"[{_NO_SPACES}]"), re.compile(rf"[{_NO_SPACES}]|[^\s{_NO_SPACES}]+")


@dataclass
class DocumentCounts:
    """Counts over a set of documents; `words` are separated by white space, `text_bytes` counts UTF-8."""

    documents: Count = 0
    words: Count = 0
    text_bytes: Count = 0

    def add(self, document: Document) -> None:
        """Counts `document`."""
        text = document.text
        words = _WORD.findall(text) if _OF_NO_SPACES.search(text) else text.split()
        self.merge(DocumentCounts(1, len(words), len(text.encode())))

    def merge(self, other: "DocumentCounts") -> None:
        """Adds the counts of `other`."""
        self.documents += other.documents
        self.words += other.words
        self.text_bytes += other.text_bytes


@dataclass(frozen=True)
class PartFile(FileEntry):
    """One Parquet file, and the number of its documents."""

    documents: Count


@dataclass
class SkippedCount:
    """Parts of the input that gave no document for one reason: their number, and the names of the first ones."""

    count: Count = 0
    examples: list[str] = field(default_factory=list)

    def merge(self, other: "SkippedCount") -> None:
        """Adds the parts of `other`."""
        self.count += other.count
        self.examples = (self.examples + other.examples)[:MAX_EXAMPLES]


@dataclass
class DocumentsManifest:
    """The content of `documents.json`."""

    source: str  # kind of the raw collection
    inputs: list[dict[str, Any]]  # what was read: names and sizes, or whatever identifies the input
    options: dict[str, Any]  # the flags that decide the output, such as the held-out fraction
    counts: dict[str, DocumentCounts]  # of each split
    raw_bytes: Count  # of the decompressed input, markup included
    skipped: dict[str, SkippedCount]  # what gave no document, by the reason
    files: list[PartFile] = field(default_factory=list)  # every Parquet file, in order
    format_version: int = FORMAT_VERSION

    @property
    def language(self) -> str:
        """Code of the language of the texts."""
        return str(self.options.get(LANGUAGE, ENGLISH))


def split_of(document_id: str, held_out: float, validation: float = 0.0) -> str:
    """Returns the split of a document, by a hash of its id alone. A larger fraction holds out the same ones, and more.

    held_out: fraction that results are reported on. validation: fraction that settings are chosen with.
    """
    place = _place_of(document_id)
    if place < held_out:
        return HELD_OUT
    return VALIDATION if place < held_out + validation else TRAIN


def _place_of(document_id: str) -> float:
    digest = hashlib.blake2b(_HELD_OUT_SALT + document_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def least_fraction(directory: Path, manifest: DocumentsManifest) -> float:
    """Returns the least fraction, to 0.001, that would hold out one of the documents, if none is held out."""
    paths = (path for split in manifest.counts for path in list_parts(directory, manifest, split))
    ids = (one for path in paths for one in pq.read_table(path, columns=["id"])["id"].to_pylist())
    return min(0.999, math.floor(1 + 1000 * min(map(_place_of, ids))) / 1000)


def splits_of(options: Mapping[str, Any]) -> list[str]:
    """Returns the splits that documents with these options have."""
    return [TRAIN, *(split for split in (HELD_OUT, VALIDATION) if options.get(split))]


def spelled(name: str) -> str:
    """Returns a file's name as valid UTF-8 text. Invalid bytes ("caf\xe9" in Latin-1) are escaped: "caf\\xe9"."""
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def part_name(split: str, index: int) -> str:
    """Returns the file name of the documents of work unit `index` in `split`."""
    return f"{split}-{index:05d}.parquet"


@dataclass
class PartWriter:
    """A Parquet file that is being written, with one row group in memory. `writing_part` makes it."""

    _writer: pq.ParquetWriter
    _group: list[Document] = field(default_factory=list)
    _characters: int = 0
    documents: int = 0
    file: PartFile | None = None  # set when the file is complete

    def add(self, document: Document) -> None:
        """Appends a document."""
        self._group.append(document)
        self._characters += len(document.text)
        self.documents += 1
        if self._characters >= _ROW_GROUP_CHARACTERS:
            self.close_group()

    def close_group(self) -> None:
        """Writes the documents that are in memory."""
        if self._group:
            columns = [[getattr(document, name) for document in self._group] for name in SCHEMA.names]
            self._writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=len(self._group))
        self._group, self._characters = [], 0


@contextlib.contextmanager
def writing_part(path: Path) -> Iterator[PartWriter]:
    """Writes one Parquet file (zstd) atomically. The same documents always give the same bytes."""
    with replacing(path) as temporary:
        with pq.ParquetWriter(temporary.absolute(), SCHEMA, **_PARQUET) as writer:  # see `parquet_file`
            part = PartWriter(writer)
            yield part
            part.close_group()
        part.file = PartFile(path.name, temporary.stat().st_size, file_checksum(temporary), part.documents)


@contextlib.contextmanager
def parquet_file(path: Path) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file of any name. Arrow takes "run-12:30/a.parquet" for a URI, and no name that is not UTF-8."""
    with open_regular(path) as opened, pq.ParquetFile(opened) as file:
        yield file


@contextlib.contextmanager
def opened_part(path: Path) -> Iterator[pq.ParquetFile]:
    """Opens one Parquet file of documents. UserError: it cannot be read, also inside the `with` block."""
    try:
        with parquet_file(path) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise UserError(f"{path} has other columns than documents; extract them again")
            yield file
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as documents ({one_line(error)}); extract them again") from error


def list_parts(directory: Path, manifest: DocumentsManifest, split: str) -> dict[Path, PartFile]:
    """Returns the checked Parquet files of a split in order, with their entries. UserError: none, or damage."""
    if split not in manifest.counts:
        flag = split.replace("_", "-")
        raise UserError(f"{directory} has no {split} split; extract into another --out with --{flag} FRACTION")
    parts = {directory / file.name: file for file in manifest.files if file.name.startswith(f"{split}-")}
    # The content is checked, too: these Parquet files have no checksums, so a flipped bit would become other text.
    # Reading takes most of the time, and a checksum is computed without Python's lock.
    with ThreadPoolExecutor(_READERS) as readers:
        actual = list(readers.map(lambda part: file_checksum(part) if part.is_file() else None, parts))
    for (part, file), checksum in zip(parts.items(), actual):
        if checksum != file.xxh3_128:
            raise UserError(f"{part} is missing or has changed since it was extracted; extract {directory} again")
    return parts


def write_manifest(directory: Path, manifest: DocumentsManifest) -> None:
    """Writes `documents.json`, which completes the directory."""
    checksums.write_manifest(directory / MANIFEST, manifest, indent=2, ensure_ascii=False)


def read_manifest(directory: Path) -> DocumentsManifest:
    """Reads `documents.json`. UserError: it is missing, damaged, or of another format version."""
    remedy = "extract it again"
    return checksums.read_manifest(directory / MANIFEST, "extract", DocumentsManifest, FORMAT_VERSION, LISTED, remedy)
