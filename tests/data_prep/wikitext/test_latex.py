"""Formulas as a reader would type them in one line."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.wikitext.tags import formula_to_text

RENDERED = tomllib.loads(Path(__file__).with_name("rendered.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("latex", "text"), RENDERED["formulas"])
def test_formulas(latex: str, text: str) -> None:
    assert formula_to_text(latex) == text


_PIECES = [
    r"\frac", r"\over", r"\sqrt", r"\left", r"\right.", r"\begin{array}{c}", r"\end{array}", r"\not", r"\text",
    r"\xrightarrow", r"\tag", "{", "}", "[", "]", "^", "_", "&", "~", "\\\\", "\\", " ", "a", "1", ".",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join))
def test_any_string_is_accepted(latex: str) -> None:
    """Damaged formulas are frequent in exports. Whatever they hold, one line comes out."""
    text = formula_to_text(latex)
    assert text == " ".join(text.split())


@pytest.mark.parametrize(
    "piece", ["{", r"\frac", r"\sqrt[", "^", r"\left.", r"\text{", r"{a \over", r"\begin{array}", r"\xrightarrow["]
)
def test_many_beginnings_are_read_in_one_pass(piece: str) -> None:
    assert isinstance(formula_to_text(piece * 50_000), str)  # if the work grew as the square, this would take hours
