"""Raw collections: one module for each kind, and the sample that needs no download by hand.

A kind of collection is a `Source`: it cuts its input into units of work that can be read on their own, on any rank and in
any order, and turns one unit into documents. Where the cuts lie depends on the input alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from data_prep.documents import Document


@dataclass(frozen=True)
class Skipped:
    """Something in the input that gave no document. name: of the page, file or record; reason: a few fixed words."""

    name: str
    reason: str


class Source(Protocol):
    """One raw collection.

    inputs: what is read, as `documents.json` records it. units: what one unit covers (opaque to others). sizes: bytes of
    input of each unit.
    """

    inputs: list[dict[str, Any]]
    units: Sequence[Any]
    sizes: Sequence[int]

    def read(self, unit: Any) -> Iterator[Document | Skipped]:
        """Documents of one unit in order. UserError names a file that is damaged."""
