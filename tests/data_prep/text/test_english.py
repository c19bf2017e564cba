"""English sentences: boundaries decided by reading."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from data_prep.corpus.documents import Document
from data_prep.sources.wikipedia import Wikipedia
from data_prep.text import english
from data_prep.text.sentences import split_sentences


def decided_boundaries(sample: Path, kind: str) -> list[tuple[str, set[int]] | None]:
    """Paragraphs of real texts and the offsets where a sentence but the last ends, which were decided by reading.

    `decided_boundaries.json` lists paragraphs of the sample corpus by checksum, how many places were decided (each full
    stop, question mark, exclamation mark or ellipsis before white space), and the offsets. None stands for a paragraph
    that the extraction no longer gives.

    What was decided: sentences inside quotations end, too. Before a small letter or "&" none ends. A quotation and the
    words that name its speaker are one sentence, and so are a quotation and its source after a dash. The name of a
    speaker that begins a line of a play belongs to what he says, and the number of an entry to the entry.
    """
    if kind == "encyclopedia":
        source = Wikipedia([sample / "wikipedia"], 16 << 20)
        articles = [item for unit in source.units for item in source.read(unit) if isinstance(item, Document)]
        paragraphs = [line for article in articles for line in article.text.split("\n")]
    else:
        plays = [path.read_bytes().decode("latin-1") for path in sorted((sample / "books").iterdir())]
        paragraphs = [" ".join(part.split()) for play in plays for part in re.split(r"\n\s*\n", play)]
    by_checksum = {hashlib.sha256(text.encode()).hexdigest()[:16]: text for text in paragraphs}
    decided = json.loads(Path(__file__).with_name("decided_boundaries.json").read_text(encoding="utf-8"))[kind]
    return [(by_checksum[one], set(ends)) if one in by_checksum else None for one, _, ends in decided]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("encyclopedia", 600), ("play", 500)])
def test_precision_and_recall_on_boundaries_decided_by_reading(sample_corpus: Path, kind: str, least: int) -> None:
    decided = decided_boundaries(sample_corpus, kind)
    there = [paragraph for paragraph in decided if paragraph is not None]
    assert len(there) > 0.9 * len(decided)  # the extraction may change a paragraph
    assert sum(len(ends) for _, ends in there) >= least
    found = made = 0
    for text, ends in there:
        stops, position = set(), 0
        for sentence in split_sentences(text):
            position = text.index(sentence, position) + len(sentence)
            stops.add(position)
        stops.discard(len(text))
        found, made = found + len(stops & ends), made + len(stops)
    assert found / made >= 0.98
    assert found / sum(len(ends) for _, ends in there) >= 0.95


def test_no_group_is_possessive() -> None:
    """Python before 3.11.5 goes back into such a group, and then joins sentences (github.com/python/cpython/106052)."""
    for source in Path(english.__file__).parents[1].rglob("*.py"):
        assert not re.search(r"\)[*+?]\+|\(\?>", source.read_text(encoding="utf-8")), source
