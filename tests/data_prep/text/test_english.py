"""English sentences: each kind of error by hand, nothing lost, linear time, and boundaries decided by reading."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.corpus.documents import Document
from data_prep.sources.wikipedia import Wikipedia
from data_prep.text import english
from data_prep.text.sentences import split_sentences

CASES = [
    "See Smith et al. [2004] and Jones et al. (2005).|It is by Smith et al.|The work is good.",
    "See fig. (3), eq. (5), eqs. [6], sec. (2).|Pages: pp. [12], p. (3), vol. [II], no. (4).|He said no.|(He left.)",
    "It ended.|(5 people stayed.)|He went on page.|[II] is next.|In No. (IV) it is.",
    "It was Mr. Will.|He left Mrs. Bates at St. Mary's.|Dr. No came.",
    "She won Jeopardy! where nobody had.|He hosts Jeopardy! Masters now.",
    '"Stop!" cried Emma.|"I will not."|He went.',
    '"Where are you?" Alice asked.|"Here!"|The Queen was silent.',
    "'Why?' I said.|'I must know.'|'And what?' said the King.",
    '"I am tired," he said.|"So am I.|Let us go."|They went.',
    '"He said, \'Go away!\' and I went.|Did you?"|"Yes!"',
    'He wrote: "It is dull.|It is long."|Then he slept.',
    "“Come!” Mr. Weston called.|“It rains.|It pours.”|‘Oh?’",
    'The end. "|He left.',
    "I wondered ... but no.|It was late....|He went.|Well... I do not know.",
    "J. R. R. Tolkien met A. A. Milne.|We chose plan B.|The plan failed in World War I.|It ended.",
    "The U.S. Army left the U.S. The war was over.".replace("U.S. The", "U.S.|The"),
    "It is No. 2 of vol. 3, pp. 4, e.g. Ten, cf. Smith vs. Jones.|On Sept. 5 he left.",
    "He works at Smith Inc. in Ohio.|She runs Jones Ltd. However, not now.".replace("Ltd. However", "Ltd.|However"),
    "It has wheels (four, etc.).|(See below.)|It rolls.",
    "HAMLET. To be, or not to be?|That is it.",
    "1 Clown. Dig on.|Dig.",
    "IX. The God of the Gongs",
    "Thou fool! whither goest thou? [Exit.]|Come.".replace("thou? [", "thou?|["),
    "He said yes; she said no: it was over.",
    "They go.|(He went.)|“Why?”|Élan is lost.|1980 was better.",
    "Det.-Sgt. Smith spoke--Mr. Jones did not.",
]


@pytest.mark.parametrize("marked", CASES)
def test_cases_by_hand(marked: str) -> None:
    assert split_sentences(marked.replace("|", " ")) == marked.split("|")


@given(st.lists(st.sampled_from(CASES), min_size=1, max_size=4))
def test_splitting_twice_changes_nothing(cases: list[str]) -> None:
    sentences = split_sentences(" ".join(cases).replace("|", " "))
    assert [again for sentence in sentences for again in split_sentences(sentence)] == sentences


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
