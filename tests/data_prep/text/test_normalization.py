"""Compares normalisation with a plain transcription of its definition."""

import random
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_prep.text.normalize import Normalization, normalize


def reference(text: str) -> str:
    """Normalises by the definition, character by character and without shortcuts."""
    text = text.replace("\0", " ").replace("▁", " ").replace("``", '"').replace("''", '"')
    decomposed = unicodedata.normalize("NFKD", text)
    return " ".join("".join(c for c in decomposed if not unicodedata.combining(c)).lower().split())


@example("Čeština  déjà\tVU\n ``quoted'' ﬁne ½ Ⅷ ２ Straße İstanbul a\u00a0b\u3000c don't a\0b▁c ▁")
@given(st.text())
def test_normalize_is_its_definition(text: str) -> None:
    assert normalize(text) == reference(text)


def test_the_definition_is_that_of_the_reference_code() -> None:
    assert normalize("Čeština  déjà\tVU\n ``quoted'' ﬁne ½ Ⅷ don't") == 'cestina deja vu "quoted" fine 1⁄2 viii don\'t'


def test_long_runs_of_marks_take_linear_time() -> None:
    """NFKD sorts the marks behind a letter in quadratic time: two million of them took hours."""
    marks = "a" + "\u0301\u0323" * 500_000 + "b"
    assert normalize(marks) == "ab"


def test_long_runs_are_decomposed_as_a_whole_is() -> None:
    generator = random.Random(0)
    characters = [
        chr(code)
        for code in (*range(0x80, 0x2580), *range(0x2582, 0x3000), *range(0xA000, 0xD7FF), *range(0xF900, 0x10000))
    ]
    for _ in range(20):
        text = "".join(generator.choices(characters, k=3000))
        whole = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        assert normalize(text) == " ".join(whole.lower().split())


@pytest.mark.parametrize(
    ("case", "accents", "expected"),
    [
        (False, False, "elise и かな क्या".replace("क्या", "कया")),
        (True, False, "Elise и かな कया"),
        (False, True, "élise й がな क्या"),
        (True, True, "Élise й がな क्या"),
    ],
)
def test_what_is_kept(case: bool, accents: bool, expected: str) -> None:
    assert normalize("E\u0301lise  й か\u3099な\tक्या", Normalization(case, accents)) == expected


@given(st.text(st.sampled_from("aE\u0301\u0323\u00e9'`A\u0130\uac01\u3099か \u2003") | st.characters(), max_size=20))
def test_kept_accents_are_composed(text: str) -> None:
    quoted = text.replace("\0", " ").replace("▁", " ").replace("``", '"').replace("''", '"')
    composed = " ".join(unicodedata.normalize("NFKC", quoted).split())
    assert normalize(text, Normalization(True, True)) == composed
    assert normalize(text, Normalization(False, True)) == " ".join(composed.lower().split())
