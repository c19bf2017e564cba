"""Turns LaTeX formulas into a line of text, so that the sentence around a formula stays whole.

The symbols are those of pylatexenc, with a table of our own before it. Fractions, roots, scripts, accents and
arrangements follow the rules in this file.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

# command and the symbol that it shows, where pylatexenc has none or another one
_TABLE = """
alpha α, beta β, gamma γ, delta δ, epsilon ε, zeta ζ, eta η, theta θ, iota ι, kappa κ, lambda λ, mu μ, nu ν, xi ξ, pi π
rho ρ, sigma σ, tau τ, upsilon υ, phi φ, chi χ, psi ψ, omega ω, varepsilon ϵ, vartheta ϑ, varphi ϕ, Gamma Γ, Delta Δ
Theta Θ, Lambda Λ, Xi Ξ, Pi Π, Sigma Σ, Phi Φ, Psi Ψ, Omega Ω, ell ℓ, hbar ħ, partial ∂, nabla ∇, infty ∞, aleph ℵ
times ×, cdot ·, div ÷, pm ±, mp ∓, leq ≤, le ≤, geq ≥, ge ≥, neq ≠, ne ≠, approx ≈, equiv ≡, sim ∼, propto ∝
leqslant ≤, geqslant ≥, bot ⊥, models ⊨, triangle △, square □, Re Re, Im Im, wp ℘, And &, lang ⟨, rang ⟩, sub ⊂, sup ⊃
in ∈, notin ∉, subset ⊂, subseteq ⊆, cup ∪, cap ∩, emptyset ∅, setminus ∖, forall ∀, exists ∃, neg ¬, land ∧, lor ∨
wedge ∧, vee ∨, oplus ⊕, otimes ⊗, circ ∘, to →, rightarrow →, leftarrow ←, leftrightarrow ↔, mapsto ↦, Rightarrow ⇒
Leftrightarrow ⇔, iff ⇔, implies ⇒, impliedby ⇐, sum ∑, prod ∏, int ∫, prime ′, degree °, perp ⊥, parallel ∥, angle ∠
longrightarrow →, longleftarrow ←, Longrightarrow ⇒, longmapsto ↦, longleftrightarrow ↔, Longleftrightarrow ⇔
ldots …, dots …, dotsc …, dotsb ⋯, cdots ⋯, mid |, vert |, lvert |, rvert |, backslash \\, imath i, jmath j, R R, N N
Z Z, Q Q, C C, lt <, gt >, langle ⟨, rangle ⟩, lfloor ⌊, rfloor ⌋, lbrace {, rbrace }, lbrack [, rbrack ], colon :
arccos arccos, arcsin arcsin, arctan arctan, cos cos, cosh cosh, cot cot, csc csc, det det, dim dim, exp exp, gcd gcd
inf inf, ker ker, lim lim, ln ln, log log, max max, min min, mod mod, bmod mod, sec sec, sin sin, sinh sinh, sup sup
tan tan, tanh tanh, arg arg, deg deg, hom hom, lg lg, liminf liminf, limsup limsup, Pr Pr
"""
_SYMBOLS = dict(entry.split() for line in _TABLE.strip().split("\n") for entry in line.split(", "))

_SHOWN = """
text textrm textit textbf textsf texttt textnormal mathrm mathbf mathit mathsf mathbb mathcal mathfrak mathscr
mathtt mathnormal boldsymbol bold bm pmb rm bf it hat check breve acute grave bar vec tilde dot ddot overline
underline widehat widetilde mbox hbox ce chem boxed overrightarrow overleftarrow underbrace overbrace cancel
smash mathop mathrel mathbin mathord mathopen mathclose mathinner mathstrut emph overleftrightarrow
"""
"""Commands whose argument is shown, without a mark: fonts, accents, lines."""
_FUNCTIONS = frozenset({"operatorname", "operatornamewithlimits"})
_HIDDEN = """
color pagecolor label hspace vspace phantom hphantom vphantom kern mkern style class id
"""
"""Commands whose argument is an instruction for the typesetter."""
_SIZES = """
left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm Bigm
"""
"""Sizes of the delimiter that follows."""
_ARROWS = {"xrightarrow": "→", "xleftarrow": "←", "xleftrightarrow": "↔", "xRightarrow": "⇒", "xmapsto": "↦"}
_SHOWN_NAMES, _HIDDEN_NAMES, _SIZE_NAMES = (frozenset(names.split()) for names in (_SHOWN, _HIDDEN, _SIZES))
_INFIX = frozenset({"over", "choose", "atop", "brace", "brack"})

_TOKEN = re.compile(r"\\([A-Za-z]+)\*?(\s?)|\\(.)|([{}\[\]^_&~])|([^\\{}\[\]^_&~]+)|(\\)", re.DOTALL)
_ARRANGEMENT = re.compile(r"\\begin\s*\{[^{}]*\}(?:\{[^{}]*\})?|\\end\s*\{[^{}]*\}")
_MAX_DEPTH = 40
"""Groups inside groups that are read as such. The braces of deeper ones are dropped."""


def to_text(latex: str) -> str:
    """Writes LaTeX as a reader would type it in one line: `\\frac{a}{b}` a/b, `x^{2}` x^2, `\\alpha` α, `\\leq` ≤.

    Any string is accepted. Commands that are not known show nothing. The work grows linearly with the length.
    """
    is_arrangement = "\\begin" in latex
    if is_arrangement:
        latex = _ARRANGEMENT.sub(" ", latex)
    return " ".join(_Reader(latex, is_arrangement).sequence(None).split())


class _Reader:
    """Reads a formula from left to right."""

    def __init__(self, latex: str, is_arrangement: bool) -> None:
        self._tokens = list(_TOKEN.finditer(latex))
        self._at = 0
        self._depth = 0
        self._row_end = "; " if is_arrangement else " "
        self._column_end = " " if is_arrangement else "&"

    def sequence(self, end: str | None) -> str:
        """Returns the text up to the token `end` ("}" or "]"; None: the end of the formula), which is skipped."""
        self._depth += 1
        before_infix: tuple[str, str] | None = None  # the command, and what stands before it
        parts: list[str] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if end is not None and token[4] == end:
                self._at += 1
                break
            if token[1] in _INFIX and before_infix is None:
                self._at += 1
                before_infix, parts = (token[1], "".join(parts)), []
            else:
                parts.append(self._item())
        self._depth -= 1
        text = "".join(parts)
        return text if before_infix is None else _infix(*before_infix, text)

    def _item(self) -> str:
        """Returns the text of the next token, with its arguments."""
        token = self._tokens[self._at]
        self._at += 1
        name, blank, character, special, plain, _ = token.groups()
        if plain is not None:
            return str(plain)
        if special is not None:
            return self._special(special)
        if name is not None:
            return self._command(name, blank)
        if character == "\\":
            return self._row_end
        return character if character is not None and character in "%$#&_|{}" else " "

    def _special(self, special: str) -> str:
        if special == "{":
            return self.sequence("}") if self._depth < _MAX_DEPTH else ""
        if special in "^_":
            return _script(special, self._argument())
        return {"}": "", "~": " ", "&": self._column_end}.get(special, special)

    def _argument(self) -> str:
        """Returns the text of the next argument: a group, a command with its arguments, or one character."""
        self._pass_blanks()
        if self._at == len(self._tokens):
            return ""
        token = self._tokens[self._at]
        if token[4] == "}":
            return ""
        if token[5] is not None:
            text = token[5].lstrip()
            self._replace_token(text[1:])
            return str(text[0])
        if token[4] in ("^", "_"):
            return ""
        if self._depth >= _MAX_DEPTH:
            self._at += 1
            return ""
        self._depth += 1
        text = self._item()
        self._depth -= 1
        return str(text)

    def _option(self) -> str:
        """Returns the text of an argument in brackets, or "" if there is none."""
        self._pass_blanks()
        if self._at < len(self._tokens) and self._tokens[self._at][4] == "[" and self._depth < _MAX_DEPTH:
            self._at += 1
            return self.sequence("]")
        return ""

    def _pass_blanks(self) -> None:
        while self._at < len(self._tokens) and self._tokens[self._at][0].isspace():
            self._at += 1

    def _command(self, name: str, blank: str) -> str:
        """Returns what the command `name` shows. blank: the blank behind it."""
        if name in _SHOWN_NAMES:
            return self._argument()
        if name in _FUNCTIONS:
            return self._word(self._argument())
        if name in _HIDDEN_NAMES:
            self._argument()
            return ""
        if name in _SIZE_NAMES:
            return self._delimiter()
        if name in _ARROWS:
            self._option()
            above = self._argument().strip()
            return f" –{above}{_ARROWS[name]} " if above else f" {_ARROWS[name]} "
        if name in _WITH_ARGUMENTS:
            return _WITH_ARGUMENTS[name](self)
        if name == "not":
            negated = self._argument()
            return unicodedata.normalize("NFC", f"{negated[:1]}\u0338") + negated[1:]
        shown = _SYMBOLS.get(name) or _library_symbol(name)
        if len(shown) > 1 and shown.isalpha() and shown.isascii():
            return f"{shown} "
        return f"{shown}{blank}" if shown else ""

    def _word(self, text: str) -> str:
        """Returns the name of a function, with a blank if a letter or a digit follows."""
        following = self._tokens[self._at] if self._at < len(self._tokens) else None
        runs_on = following is not None and (following[1] is not None or (following[5] or "")[:1].isalnum())
        return f"{text} " if runs_on else text

    def _delimiter(self) -> str:
        """Returns the delimiter behind `\\left` and the like. A point stands for none."""
        self._pass_blanks()
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is not None and (token[5] or "").startswith("."):
            self._replace_token(token[5][1:])
        return ""

    def _replace_token(self, rest: str) -> None:
        """Puts plain text in the place of the next token."""
        if rest:
            match = _TOKEN.match(rest)
            assert match is not None, rest
            self._tokens[self._at] = match
        else:
            self._at += 1

    def fraction(self) -> str:
        """`\\frac{a}{b}`."""
        return _quotient(self._argument(), self._argument())

    def binomial(self) -> str:
        """`\\binom{n}{k}`."""
        return _infix("choose", self._argument(), self._argument())

    def root(self) -> str:
        """`\\sqrt[n]{x}`."""
        index, radicand = self._option().strip(), self._argument()
        sign = {"": "√", "2": "√", "3": "∛", "4": "∜"}.get(index)
        return f"{_grouped(radicand)}^(1/{index})" if sign is None else f"{sign}{_grouped(radicand)}"

    def above(self) -> str:
        """`\\overset{above}{base}`."""
        script = self._argument()
        return self._argument() + _script("^", script)

    def below(self) -> str:
        """`\\underset{below}{base}`."""
        script = self._argument()
        return self._argument().rstrip() + _script("_", script)

    def second(self) -> str:
        """`\\textcolor{red}{x}`."""
        self._argument()
        return self._argument()

    def modulus(self) -> str:
        """`\\pmod{n}`."""
        return f" (mod {self._argument().strip()})"

    def tag(self) -> str:
        """`\\tag{1}`."""
        return f" ({self._argument().strip()})"


_WITH_ARGUMENTS: dict[str, Callable[[_Reader], str]] = {
    **dict.fromkeys(("frac", "tfrac", "dfrac", "cfrac", "sfrac", "nicefrac"), _Reader.fraction),
    **dict.fromkeys(("binom", "tbinom", "dbinom"), _Reader.binomial),
    "sqrt": _Reader.root,
    **dict.fromkeys(("overset", "stackrel"), _Reader.above),
    "underset": _Reader.below,
    **dict.fromkeys(("textcolor", "colorbox", "href", "raisebox", "cancelto"), _Reader.second),
    **dict.fromkeys(("pmod", "pod"), _Reader.modulus),
    "tag": _Reader.tag,
}
"""Commands with arguments, and the method that reads them."""


@cache
def _library_symbol(name: str) -> str:
    """Returns the symbol that pylatexenc has for a command, or "" if it has none."""
    symbol = getattr(_library().get_macro_spec(name), "simplify_repl", None)
    return symbol.strip() if isinstance(symbol, str) and "%" not in symbol else ""


@cache
def _library() -> Any:
    """Returns pylatexenc's commands. The import takes a while, and few formulas need it."""
    from pylatexenc.latex2text import get_default_latex_context_db

    return get_default_latex_context_db()


def _infix(command: str, left: str, right: str) -> str:
    """Returns `left \\command right` as text."""
    left, right = left.strip(), right.strip()
    if command == "over":
        return _quotient(left, right)
    return f"({left} choose {right})" if command == "choose" else f"{left}, {right}"


def _quotient(numerator: str, denominator: str) -> str:
    return f"{_grouped(numerator)}/{_grouped(denominator)}"


def _grouped(term: str) -> str:
    """Puts a term in parentheses if a division or a root needs them."""
    term = term.strip()
    is_long = re.search(r"(?<!^)[-+\s]", term) and not re.fullmatch(r"\([^()]*\)|\[[^\[\]]*\]", term)
    return f"({term})" if is_long else term


def _script(kind: str, content: str) -> str:
    """kind: "^" or "_"."""
    content = content.strip()
    if not content:
        return ""
    is_one = re.fullmatch(r"-?\w+|[-+*'′]|[^\x00-\x7f]", content)
    return f"{kind}{content}" if is_one else f"{kind}({content})"
