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


@pytest.mark.parametrize(
    "unit", [". ", "… ", "1. ", "a. ", "н. э. ", '." ', "。」", "? - ", "w. ", "！", " » . ", "[. ] "]
)
@pytest.mark.parametrize("language", ["de", "ru", "zh"])
def test_time_is_linear_in_other_languages(unit: str, language: str) -> None:
    """A paragraph of such units alone, which took minutes where each one was read again, is split at once."""
    assert split_sentences(unit * (100_000 // len(unit)), language)


@given(
    st.text(alphabet='aŞ .!?。」と「\n"ñ\u00a0।', max_size=60), st.sampled_from(["de", "fr", "ja", "zh", "hi", "qq"])
)
def test_sentences_of_other_languages_lose_nothing(text: str, language: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 20)
        sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in sentences)


def test_a_paragraph_without_blanks_is_cut_after_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 20)
    assert split_sentences("子供たちはここで遊ぶ。" * 30, "ja") == ["子供たちはここで遊ぶ。"] * 30
