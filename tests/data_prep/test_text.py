"""Normalisation against a plain transcription of its definition; sentences against hand-made ones."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_prep.text import normalize, split_sentences


def reference(text: str) -> str:
    """The definition, character by character and without shortcuts."""
    text = text.replace("``", '"').replace("''", '"')
    decomposed = unicodedata.normalize("NFKD", text)
    return " ".join("".join(c for c in decomposed if not unicodedata.combining(c)).lower().split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Čeština  déjà\tVU\n", "cestina deja vu"),
        ("``quoted''", '"quoted"'),
        ("ﬁne ½ Ⅷ ２", "fine 1⁄2 viii 2"),
        ("Straße İstanbul", "straße istanbul"),
        ("a\u00a0b\u3000c", "a b c"),
        ("don't O'Neil", "don't o'neil"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_normalize_examples(text: str, expected: str) -> None:
    assert normalize(text) == expected


@given(st.text())
def test_normalize_is_its_definition(text: str) -> None:
    assert normalize(text) == reference(text)


@given(st.text(alphabet="ae\u0301\u0323\u00e9 \u1e69'`A\u0130\uac01", max_size=30))
def test_normalize_with_accents_that_change_places(text: str) -> None:
    assert normalize(text) == reference(text)


def test_sentences_end_at_stops_and_at_line_breaks() -> None:
    text = 'Dr. Smith paid $3.50 to Mr. J. R. Jones. He said: "Fine." Then he left\nA new paragraph\n\n \nThe end.'
    assert split_sentences(text) == [
        "Dr. Smith paid $3.50 to Mr. J. R. Jones.",
        'He said: "Fine."',
        "Then he left",
        "A new paragraph",
        "The end.",
    ]


@example("J\u00a0.")
@example('"B\u3000B\u3000.')
@given(st.text(alphabet="aB .!?\n\"'é\u00a0\u2009\u3000", max_size=60))
def test_sentences_lose_nothing(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in sentences)
