"""Kinds of raw collections. Each is a `Source`, which this module defines.

A `Source` cuts its input into work units, which any rank can read alone and in any order, and turns a work unit into
documents. Where it cuts depends on the input alone.

    opening    opens files, decompressed
    encodings  decodes files of unknown encoding
    wikipedia  MediaWiki XML exports, and random access to .bz2 files
    books      text files, one book each
    records    records with a field of text: JSON lines, Parquet, and what `datasets.load_dataset` can stream
    sample     downloads the sample corpus (the job `sample`)
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.text import printable
from data_prep.corpus.documents import Document, spelled
from data_prep.sources.opening import visible_files
from data_prep.text import ENGLISH


@dataclass(frozen=True)
class Skipped:
    """A part of the input that gave no document."""

    name: str  # of the page, file or record
    reason: str  # a few words from a fixed set


@dataclass(frozen=True)
class FileRange:
    """Pages or lines that begin in bytes [begin, end) of a file, or the row groups [begin, end) of a Parquet file."""

    path: Path
    name: str  # path relative to the --input that contains it
    begin: int
    end: int  # of a compressed file of lines its size


class Source(abc.ABC):
    """One raw collection. Its constructor checks the input and cuts it into work units. It can be pickled."""

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []  # what is read, as `documents.json` records it
        self.units: list[Any] = []  # only `read` of the same class interprets them
        self.sizes: list[int] = []  # bytes of input of each unit
        self.consumed = 0  # bytes of decompressed raw text that `read` has read in this process
        self.language = ENGLISH  # code of the language of the texts, as far as the input tells it

    def plan(self, files: Sequence[tuple[Path, str]]) -> None:
        """Records (path, name) of files among the inputs, and cuts them by `plan_file`. UserError: two are the same."""
        names: set[str] = set()
        places: set[tuple[int, int]] = set()  # device and inode of each file
        for path, name in files:
            status = path.stat()
            if (place := (status.st_dev, status.st_ino)) in places:
                raise UserError(f"{path} is given twice, and its documents would count double; name it once in --input")
            if name in names:
                raise UserError(f"two files are called {name}; give one directory above both as --input")
            places.add(place)
            names.add(name)
            self.inputs.append({"name": name, "bytes": status.st_size})
            self.plan_file(path, name, status.st_size)

    def plan_file(self, path: Path, name: str, size: int) -> None:
        """Checks a file of `size` bytes and appends its work units. UserError: it cannot be read."""
        raise NotImplementedError

    def add(self, unit: Any, size: int) -> None:
        """Appends a work unit of `size` bytes."""
        self.units.append(unit)
        self.sizes.append(size)

    def add_part(self, part: Any, size: int, unit_bytes: int) -> None:
        """Appends a part of `size` bytes to the last work unit, a list, unless it would exceed `unit_bytes`."""
        if not self.units or self.sizes[-1] + size > unit_bytes:
            self.add([], 0)
        self.units[-1].append(part)
        self.sizes[-1] += size

    @abc.abstractmethod
    def read(self, unit: Any) -> Iterator[Document | Skipped]:
        """Yields the documents of one work unit in order. UserError: a file is damaged."""


def find_files(path: Path, is_wanted: Callable[[str], object], kind: str) -> list[tuple[Path, str]]:
    """Returns (path, name) of the file at `path`, or of the `visible_files` below it. A single file is always wanted.

    UserError: nothing is there of the `kind`, which the message names.
    """
    if path.is_file():
        return [(path, spelled(path.name))]
    if not path.is_dir():
        reason = "is not a regular file" if path.exists() else "does not exist"
        raise UserError(f"{path} {reason}; give a {kind}, or a directory of them")
    others: list[str] = []
    if not (files := visible_files(path, is_wanted, others)):
        raise UserError(f"{path} holds no {kind}; check --input and --source")
    if others:
        print(printable(f"extract: other files in {path} are not read ({len(others):,}, such as {min(others)})"))
    return files
