"""Formulas inside sentences: LaTeX source -> a line of text, so that the sentence around it stays whole."""

import re

_SYMBOLS = {
    **dict(zip("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi".split(), "αβγδεζηθικλμνξ")),
    **dict(zip("pi rho sigma tau upsilon phi chi psi omega".split(), "πρστυφχψω")),
    **dict(zip("Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(), "ΓΔΘΛΞΠΣΦΨΩ")),
    **dict(zip("varepsilon vartheta varphi ell hbar partial nabla infty".split(), "εϑφℓħ∂∇∞")),
    **dict(zip("times cdot div pm mp leq le geq ge neq ne approx equiv sim".split(), "×·÷±∓≤≤≥≥≠≠≈≡∼")),
    **dict(zip("in notin subset subseteq cup cap emptyset forall exists".split(), "∈∉⊂⊆∪∩∅∀∃")),
    **dict(zip("to rightarrow leftarrow Rightarrow Leftrightarrow mapsto leftrightarrow".split(), "→→←⇒⇔↦↔")),
    **dict(zip("sum prod int sqrt oplus otimes wedge vee neg land lor circ degree".split(), "∑∏∫√⊕⊗∧∨¬∧∨∘°")),
    **dict(zip("ldots cdots dots prime perp parallel angle propto setminus mid".split(), "…⋯…′⊥∥∠∝∖|")),
    **{"lbrace": "{", "rbrace": "}", "langle": "⟨", "rangle": "⟩", "lfloor": "⌊", "rfloor": "⌋", "backslash": "\\"},
    **{"quad": " ", "qquad": " ", "lt": "<", "gt": ">", "colon": ":", "iff": "⇔", "implies": "⇒", "aleph": "ℵ"},
}
# Names that are read out: sin, log, max, ...
_WORDS = frozenset(
    "arccos arcsin arctan cos cosh cot det dim exp gcd inf ker lim ln log max min mod sin sinh sup tan".split()
)
_FRACTION = re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_WRAPPER = re.compile(
    r"\\(?:text|textrm|textit|textbf|mathrm|mathbf|mathit|mathsf|mathbb|mathcal|mathfrak|mathtt|boldsymbol|operatorname"
    r"|rm|bf|it|hat|bar|vec|tilde|dot|ddot|overline|underline|widehat|mbox|hbox|ce|sqrt|boxed|overrightarrow)\*?\s*\{([^{}]*)\}"
)
_SCRIPT = re.compile(r"([_^])\{([^{}]*)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)\s?|\\(.)", re.DOTALL)


def to_text(latex: str) -> str:
    """LaTeX as a reader would type it in a line: `\\frac{a}{b}` a/b, `x^{2}` x^2, Greek letters and operators themselves."""
    if "\\begin" in latex:
        latex = (
            re.sub(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\{[^{}]*\})?", " ", latex).replace("&", " ").replace("\\\\", "; ")
        )
    before = None
    while before != latex:
        before = latex
        latex = _SCRIPT.sub(_render_script, latex)
        latex = _WRAPPER.sub(lambda match: "√" * ("sqrt" in match[0]) + match[1], latex)
        latex = _FRACTION.sub(lambda match: f"{_grouped(match[1])}/{_grouped(match[2])}", latex)
    latex = _COMMAND.sub(_render_command, latex)
    return " ".join(latex.replace("{", "").replace("}", "").replace("~", " ").split())


def _grouped(term: str) -> str:
    """A term in parentheses where it has parts that a division would tear apart."""
    term = term.strip()
    return (
        f"({term})"
        if re.search(r"(?<!^)[-+\s]", term) and not re.fullmatch(r"\([^()]*\)|\\[A-Za-z]+ ?", term)
        else term
    )


def _render_script(match: re.Match[str]) -> str:
    content = match[2].strip()
    return f"{match[1]}{content}" if re.fullmatch(r"-?\w+|\\[A-Za-z]+|\\?[*'′]", content) else f"{match[1]}({content})"


def _render_command(match: re.Match[str]) -> str:
    name, character = match[1], match[2]
    if name is None:
        return character if character in "{}%$#&_|" else " "
    if name in _SYMBOLS:
        return _SYMBOLS[name] + (" " if match[0].endswith(" ") and name not in ("sqrt",) else "")
    return f"{name} " if name in _WORDS else ""
