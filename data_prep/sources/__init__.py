"""Raw collections: one module for each kind, and the sample that needs no download by hand.

A kind of collection is a `Source`: it cuts its input into units of work that can be read on their own, on any rank and
in any order, and turns one unit into documents. Where the cuts lie depends on the input alone.
"""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from data_prep.documents import Document
from data_prep.errors import UserError

# A file up to this many bytes is known by all of its content; a larger one by its size and this many of its bytes,
# evenly spread: an export of 100 GB must not be read twice.
_FINGERPRINTED_BYTES = 64 << 20
_FINGERPRINTED_BLOCKS = 64


@dataclass(frozen=True)
class Skipped:
    """Something in the input that gave no document.

    name: of the page, file or record. reason: a few words out of a fixed set.
    """

    name: str
    reason: str


class Source(abc.ABC):
    """One raw collection, already looked at; it can be pickled.

    inputs: what is read, as `documents.json` records it. units: what one unit covers, opaque to others. sizes: bytes of
    input of each unit. consumed: bytes of raw text that `read` has gone through in this process, decompressed.
    """

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.units: list[Any] = []
        self.sizes: list[int] = []
        self.consumed = 0
        self._files: dict[Path, str] = {}

    def add_file(self, path: Path, name: str) -> int:
        """Records a file among the inputs and returns its size in bytes.

        Raises:
            UserError: it is given twice, or another file has the same name and documents would share their ids.
        """
        real = path.resolve()
        if real in self._files:
            raise UserError(f"{path} is given twice, and its documents would count double; name it once in --input")
        if name in self._files.values():
            raise UserError(f"two files are called {name}; give one directory above both as --input")
        self._files[real] = name
        size = path.stat().st_size
        self.inputs.append({"name": name, "bytes": size, "fingerprint": fingerprint(path)})
        return size

    def add(self, unit: Any, size: int) -> None:
        """Appends a unit of `size` bytes."""
        self.units.append(unit)
        self.sizes.append(size)

    @abc.abstractmethod
    def read(self, unit: Any) -> Iterator[Document | Skipped]:
        """Documents of one unit in order. UserError names a file that is damaged."""


def fingerprint(path: Path) -> str:
    """By which another content of the same name and size is told: xxh3_128, in hexadecimal.

    Of the whole content up to 64 MB, else of 64 blocks of 1 MB, the first and the last among them.
    """
    checksum = xxhash.xxh3_128()
    size = path.stat().st_size
    block = _FINGERPRINTED_BYTES // _FINGERPRINTED_BLOCKS
    with path.open("rb") as file:
        if size <= _FINGERPRINTED_BYTES:
            while content := file.read(block):
                checksum.update(content)
        else:
            for index in range(_FINGERPRINTED_BLOCKS):
                file.seek((size - block) * index // (_FINGERPRINTED_BLOCKS - 1))
                checksum.update(file.read(block))
    return checksum.hexdigest()
