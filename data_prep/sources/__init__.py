"""Raw collections: one module for each kind, and the sample that needs no download by hand.

A kind of collection is a `Source`: it cuts its input into units of work that can be read on their own, on any rank and
in any order, and turns one unit into documents. Where the cuts lie depends on the input alone.
"""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data_prep.documents import Document


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

    def add(self, unit: Any, size: int) -> None:
        """Appends a unit of `size` bytes."""
        self.units.append(unit)
        self.sizes.append(size)

    @abc.abstractmethod
    def read(self, unit: Any) -> Iterator[Document | Skipped]:
        """Documents of one unit in order. UserError names a file that is damaged."""
