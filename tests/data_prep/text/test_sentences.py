"""Compares the sentences of texts with those found by hand, and boundaries with those decided by reading."""

import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.corpus.documents import Document
from data_prep.sources.wikipedia import Wikipedia
from data_prep.text.sentences import split_sentences
from tests.data_prep.corpora import ROOT, read_all
from tests.data_prep.foreign_pages import WIKIS, Wiki


@given(st.lists(st.sampled_from(["One is here. ", "Two ", "three. ", "\n", "long" * 9]), max_size=40).map("".join))
def test_long_paragraphs_are_cut_at_sentences_or_words(text: str) -> None:
    """Without line breaks, a whole book would be one paragraph."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 30)
        found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    words = text.split()
    assert all(
        word in words for sentence in found for word in sentence.split() if len(word) <= 30 and "long" not in word
    )


@pytest.mark.parametrize("wiki", WIKIS, ids=[wiki.language for wiki in WIKIS])
def test_sentences_of_other_languages(wiki: Wiki) -> None:
    text = ("" if wiki.language in ("ja", "zh") else " ").join(wiki.sentences)
    assert split_sentences(text, wiki.language) == list(wiki.sentences)


CASES = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("language", "marked"), [(language, case) for language, cases in CASES.items() for case in cases]
)
def test_where_sentences_end(language: str, marked: str) -> None:
    text = re.sub(r"\|(?=[ -~])" if language in ("ja", "zh") else r"\|", " ", marked)
    assert split_sentences(text.replace("|", ""), language) == marked.split("|")


@given(st.lists(st.sampled_from(CASES["en"]), min_size=1, max_size=4))
def test_splitting_twice_changes_nothing(cases: list[str]) -> None:
    sentences = split_sentences(" ".join(cases).replace("|", " "))
    assert [again for sentence in sentences for again in split_sentences(sentence)] == sentences


UNITS = [
    *(".", ". ", '."', '! "', ". . ", ".)", "A. ", "I. ", "Mr. ", '."  "', '?" Al ', "( ", ".\t", "…”", "… ", "1. "),
    *("a. ", "н. э. ", '." ', "。」", "? - ", "w. ", "！", " » . ", "[. ] "),
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("language", ["en", "de", "ru", "zh"])
def test_time_is_linear(unit: str, language: str) -> None:
    """A paragraph of such units alone, which took minutes where each one was read again, is split at once."""
    assert split_sentences(unit * (100_000 // len(unit)), language)


PARTS = [*"aBI1Ş .!?…\"'“”‘’()[]-。」と「\nñ\u00a0।é", "Mr.", " Al said", "\t", "U.S.", "..."]


@given(
    st.lists(st.sampled_from(PARTS), max_size=60).map("".join),
    st.sampled_from(["en", "de", "fr", "ja", "zh", "hi", "qq"]),
)
def test_sentences_lose_nothing(text: str, language: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 20)
        sentences = split_sentences(text, language)
        assert split_sentences("子供たちはここで遊ぶ。" * 9, "ja") == ["子供たちはここで遊ぶ。"] * 9
    for found in (sentences, split_sentences(text, language)):
        assert "".join("".join(found).split()) == "".join(text.split())
        assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in found)


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
        articles = [item for item in read_all(source) if isinstance(item, Document)]
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
    for source in (ROOT / "data_prep").rglob("*.py"):
        assert not re.search(r"\)[*+?]\+|\(\?>", source.read_text(encoding="utf-8")), source


def test_wide_spaces_are_spaces():
    assert split_sentences("He met Mr.\u00a0Smith.\u3000Then he left.") == ["He met Mr. Smith.", "Then he left."]
    assert split_sentences("Foo J\u00a0. Bar.", "sw") == ["Foo J . Bar."]
