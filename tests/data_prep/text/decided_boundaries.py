"""Real English texts whose sentence boundaries were decided by reading, and the count of those that a splitter finds.

The texts are the plays and articles of the sample corpus. `decided_boundaries.json` lists paragraphs by checksum, how
many places were decided (each full stop, question mark, exclamation mark or ellipsis before white space), and the
offsets where a sentence ends.

What was decided: sentences inside quotations end, too. Before a small letter or "&" none ends. A quotation and the
words that name its speaker are one sentence, and so are a quotation and its source after a dash. The name of a speaker
that begins a line of a play belongs to what he says, and the number of an entry to the entry.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.corpus.documents import Document
from data_prep.sources.wikipedia import Wikipedia

KINDS = ("encyclopedia", "play")


@dataclass
class Decided:
    """A paragraph, and the offsets where a sentence but the last ends."""

    text: str
    ends: list[int]


@dataclass
class Counts:
    """Boundaries of one kind of text: found, missed, and made where none is."""

    found: int = 0
    missed: int = 0
    wrong: int = 0


def read_decided(sample: Path, kind: str) -> list[Decided | None]:
    """The decided paragraphs of one kind of the sample corpus; None for one that the extraction no longer gives."""
    decided = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))[kind]
    by_checksum = {hashlib.sha256(text.encode()).hexdigest()[:16]: text for text in _paragraphs(sample, kind)}
    return [Decided(by_checksum[checksum], ends) if checksum in by_checksum else None for checksum, _, ends in decided]


def score(decided: Iterable[Decided | None], split: Callable[[str], list[str]]) -> Counts:
    """Compares the boundaries inside paragraphs with those decided. ValueError: the splitter lost characters."""
    counts = Counts()
    for paragraph in filter(None, decided):
        ends, position = set(), 0
        for sentence in split(paragraph.text):
            position = paragraph.text.index(sentence, position) + len(sentence)
            ends.add(position)
        ends.discard(len(paragraph.text))
        counts.found += len(ends & set(paragraph.ends))
        counts.missed += len(set(paragraph.ends) - ends)
        counts.wrong += len(ends - set(paragraph.ends))
    return counts


def _paragraphs(sample: Path, kind: str) -> Iterator[str]:
    """Yields the paragraphs of all texts of a kind, each a line without line breaks."""
    if kind == "encyclopedia":
        source = Wikipedia([sample / "wikipedia"], 16 << 20)
        for item in (item for unit in source.units for item in source.read(unit)):
            yield from item.text.split("\n") if isinstance(item, Document) else ()
        return
    for path in sorted((sample / "books").iterdir()):
        for part in re.split(r"\n\s*\n", path.read_bytes().decode("latin-1")):
            yield " ".join(part.split())
