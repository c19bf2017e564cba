"""Compares the sentences of texts with those found by hand."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.text.sentences import split_sentences
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
