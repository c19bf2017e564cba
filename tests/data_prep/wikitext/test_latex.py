"""Formulas as a reader would type them in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.wikitext.latex import to_text


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"x_1,x_2,\ldots,x_n", "x_1,x_2,…,x_n"),
        (r"\sqrt{2} \approx 1.41", "√2 ≈ 1.41"),
        (r"\{0,1\}^{n-1}", "{0,1}^(n-1)"),
        (r"\mathbf{v} \cdot \vec{w}", "v · w"),
        (r"\sin \theta", "sin θ"),
        (r"\dfrac{\frac{1}{2}}{x}", "1/2/x"),
        # Arguments without braces.
        (r"\tfrac12", "1/2"),
        (r"\frac 1{n}", "1/n"),
        (r"\frac\pi 2", "π/2"),
        (r"x^\frac{1}{2}", "x^(1/2)"),
        (r"\mathbf x + \sqrt x", "x + √x"),
        (r"\mbox{H}^+ + \mbox{A}^{-}", "H^+ + A^-"),
        # What stands over what.
        (r"a \over b", "a/b"),
        (r"1 + {x + y \over 2}", "1 + (x + y)/2"),
        (r"\binom{n}{k} = \tbinom n{n-k}", "(n choose k) = (n choose n-k)"),
        (r"{n \choose k}", "(n choose k)"),
        (r"{i \atop j}", "i, j"),
        (r"\overset{\mathrm{def}}{=}", "=^def"),
        (r"\underset{x}{\max} f", "max_x f"),
        (r"\underbrace{1 + 1}_{n}", "1 + 1_n"),
        # Roots.
        (r"\sqrt{a+b}", "√(a+b)"),
        (r"\sqrt[3]{x}", "∛x"),
        (r"\sqrt[n]{x+1}", "(x+1)^(1/n)"),
        # Symbols and arrows.
        (r"A \rightleftharpoons B \ll C \gg D", "A ⇌ B ≪ C ≫ D"),
        (r"a \cong b \leqslant c \geqslant d \supset e", "a ≅ b ≤ c ≥ d ⊃ e"),
        (r"A \xrightarrow{f} B \xrightarrow[g]{} C", "A –f→ B → C"),
        (r"a \not= b \not\in C", "a ≠ b ∉ C"),
        (r"A \setminus B \backslash C", r"A ∖ B \ C"),
        (r"\R \to \mathbb{R}", "R → R"),
        (r"x \equiv y \pmod{n}, a \bmod b", "x ≡ y (mod n), a mod b"),
        (r"\operatorname{sgn}x + \operatorname{Re}(z)", "sgn x + Re(z)"),
        # What only the typesetter needs.
        (r"\left. x \right|_{0}^{1}", "x |_0^1"),
        (r"\big( \Big[ y \Big] \big)", "( [ y ] )"),
        (r"\displaystyle {\color{red} x} \hspace{1em} \textcolor{blue}{y}", "x y"),
        (r"E = mc^2 \tag{1}", "E = mc^2 (1)"),
        (r"\begin{array}{cc} a & b \\ c & d \end{array}", "a b ; c d"),
    ],
)
def test_formulas(latex: str, text: str) -> None:
    assert to_text(latex) == text


_PIECES = [
    r"\frac", r"\over", r"\sqrt", r"\left", r"\right.", r"\begin{array}{c}", r"\end{array}", r"\not", r"\text",
    r"\xrightarrow", r"\tag", "{", "}", "[", "]", "^", "_", "&", "~", "\\\\", "\\", " ", "a", "1", ".",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join))
def test_any_string_is_accepted(latex: str) -> None:
    """Damaged formulas are frequent in exports. Whatever they hold, one line comes out."""
    text = to_text(latex)
    assert text == " ".join(text.split())


@pytest.mark.parametrize(
    "piece", ["{", r"\frac", r"\sqrt[", "^", r"\left.", r"\text{", r"{a \over", r"\begin{array}", r"\xrightarrow["]
)
def test_many_beginnings_are_read_in_one_pass(piece: str) -> None:
    assert isinstance(to_text(piece * 50_000), str)  # if the work grew as the square, this would take hours
