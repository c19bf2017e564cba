"""Turns LaTeX formulas into a line of text, so that the sentence around a formula stays whole.

The symbols are those of pylatexenc, with those of `latex.toml` before them. Fractions, roots, scripts, accents and
arrangements follow the rules in this file.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache

from data_prep.wikitext.site import read_table

_TABLE = read_table("latex.toml")
_SYMBOLS = dict(entry.split() for entry in _TABLE["symbols"].strip().replace("\n", ", ").split(", "))
_SHOWN, _FUNCTIONS, _HIDDEN, _SIZES, _INFIX = (
    frozenset(_TABLE[key].split()) for key in ("shown", "functions", "hidden", "sizes", "infix")
)
_ARROWS = {"xrightarrow": "→", "xleftarrow": "←", "xleftrightarrow": "↔", "xRightarrow": "⇒", "xmapsto": "↦"}

_TOKEN = re.compile(r"\\([A-Za-z]+)\*?(\s?)|\\(.)|(.)", re.DOTALL)
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
        self._tokens = list(_TOKEN.finditer(latex))  # command and blank, or escaped character, or character
        self._at = 0
        self._depth = 0
        self._row_end = "; " if is_arrangement else " "
        self._shown = {"}": "", "~": " ", "&": " " if is_arrangement else "&", "\\": " "}

    def sequence(self, end: str | None) -> str:
        """Returns the text up to the character `end` ("}" or "]"; None: the end of the formula), which is skipped."""
        self._depth += 1
        before_infix: tuple[str, str] | None = None  # the command, and what stands before it
        parts: list[str] = []
        while self._at < len(self._tokens) and not (end is not None and self._takes(end)):
            name = self._tokens[self._at][1]
            if name in _INFIX and before_infix is None:
                self._at += 1
                before_infix, parts = (name, "".join(parts)), []
            else:
                parts.append(self._item())
        self._depth -= 1
        text = "".join(parts)
        return text if before_infix is None else _infix(*before_infix, text)

    def _next(self) -> str:
        """Returns the next character; "" at the end and before a command or an escaped character."""
        return (self._tokens[self._at][4] or "") if self._at < len(self._tokens) else ""

    def _takes(self, character: str) -> bool:
        """Skips the next character if it is this one."""
        is_next = self._next() == character
        self._at += is_next
        return is_next

    def _pass_blanks(self) -> None:
        while self._next().isspace():
            self._at += 1

    def _item(self) -> str:
        """Returns the text of the next token, with its arguments."""
        name, blank, escaped, character = self._tokens[self._at].groups()
        self._at += 1
        if name is not None:
            return self._command(name, blank)
        if escaped is not None:
            return self._row_end if escaped == "\\" else escaped if escaped in "%$#&_|{}" else " "
        if character == "{":
            return self.sequence("}") if self._depth < _MAX_DEPTH else ""
        if character in "^_":
            return _script(character, self.argument())
        return str(self._shown.get(character, character))

    def argument(self) -> str:
        """Returns the text of the next argument: a group, a command with its arguments, or one character."""
        self._pass_blanks()
        if self._at == len(self._tokens) or self._next() in ("}", "^", "_"):
            return ""
        if self._depth >= _MAX_DEPTH:
            self._at += 1
            return ""
        self._depth += 1
        text = self._item()
        self._depth -= 1
        return text

    def _option(self) -> str:
        """Returns the text of an argument in brackets, or "" if there is none."""
        self._pass_blanks()
        return self.sequence("]") if self._depth < _MAX_DEPTH and self._takes("[") else ""

    def _command(self, name: str, blank: str) -> str:
        """Returns what the command `name` shows. blank: the blank behind it."""
        if name in _SHOWN:
            return self.argument()
        if name in _FUNCTIONS:
            text = self.argument()
            runs_on = self._at < len(self._tokens) and (self._tokens[self._at][1] or self._next().isalnum())
            return f"{text} " if runs_on else text
        if name in _HIDDEN:
            self.argument()
            return ""
        if name in _SIZES:  # before a delimiter; a point stands for none
            self._pass_blanks()
            self._takes(".")
            return ""
        if name in _ARROWS:
            self._option()
            above = self.argument().strip()
            return f" –{above}{_ARROWS[name]} " if above else f" {_ARROWS[name]} "
        if name in _WITH_ARGUMENTS:
            return _WITH_ARGUMENTS[name](self)
        if name == "not":
            negated = self.argument()
            return unicodedata.normalize("NFC", f"{negated[:1]}\u0338") + negated[1:]
        shown = _SYMBOLS.get(name) or _library_symbol(name)
        if len(shown) > 1 and shown.isalpha() and shown.isascii():
            return f"{shown} "
        return f"{shown}{blank}" if shown else ""

    def root(self) -> str:
        """`\\sqrt[n]{x}`."""
        index, radicand = self._option().strip(), _grouped(self.argument())
        sign = {"": "√", "2": "√", "3": "∛", "4": "∜"}.get(index)
        return f"{radicand}^(1/{index})" if sign is None else f"{sign}{radicand}"

    def stacked(self, kind: str) -> str:
        """`\\overset{above}{base}` (kind "^") and `\\underset{below}{base}` ("_")."""
        script = self.argument()
        return self.argument().rstrip() + _script(kind, script)


_WITH_ARGUMENTS: dict[str, Callable[[_Reader], str]] = {
    **dict.fromkeys(
        ("frac", "tfrac", "dfrac", "cfrac", "sfrac", "nicefrac"),
        lambda reader: _quotient(reader.argument(), reader.argument()),
    ),
    **dict.fromkeys(
        ("binom", "tbinom", "dbinom"), lambda reader: _infix("choose", reader.argument(), reader.argument())
    ),
    "sqrt": _Reader.root,
    **dict.fromkeys(("overset", "stackrel"), lambda reader: reader.stacked("^")),
    "underset": lambda reader: reader.stacked("_"),
    **dict.fromkeys(
        ("textcolor", "colorbox", "href", "raisebox", "cancelto"),
        lambda reader: (reader.argument(), reader.argument())[1],
    ),
    **dict.fromkeys(("pmod", "pod"), lambda reader: f" (mod {reader.argument().strip()})"),
    "tag": lambda reader: f" ({reader.argument().strip()})",
}
"""Commands with arguments, and what reads them."""


@cache
def _library_symbol(name: str) -> str:
    """Returns the symbol that pylatexenc has for a command, or "" if it has none."""
    from pylatexenc.latex2text import get_default_latex_context_db  # slow to import, and few formulas need it

    symbol = getattr(get_default_latex_context_db().get_macro_spec(name), "simplify_repl", None)
    return symbol.strip() if isinstance(symbol, str) and "%" not in symbol else ""


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
