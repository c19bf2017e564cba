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
            return _script(special, self.argument())
        return {"}": "", "~": " ", "&": self._column_end}.get(special, special)

    def argument(self) -> str:
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
        if name in _SHOWN:
            return self.argument()
        if name in _FUNCTIONS:
            return self._word(self.argument())
        if name in _HIDDEN:
            self.argument()
            return ""
        if name in _SIZES:
            return self._delimiter()
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

    def root(self) -> str:
        """`\\sqrt[n]{x}`."""
        index, radicand = self._option().strip(), self.argument()
        sign = {"": "√", "2": "√", "3": "∛", "4": "∜"}.get(index)
        return f"{_grouped(radicand)}^(1/{index})" if sign is None else f"{sign}{_grouped(radicand)}"

    def above(self) -> str:
        """`\\overset{above}{base}`."""
        script = self.argument()
        return self.argument() + _script("^", script)

    def below(self) -> str:
        """`\\underset{below}{base}`."""
        script = self.argument()
        return self.argument().rstrip() + _script("_", script)


_WITH_ARGUMENTS: dict[str, Callable[[_Reader], str]] = {
    **dict.fromkeys(
        ("frac", "tfrac", "dfrac", "cfrac", "sfrac", "nicefrac"),
        lambda reader: _quotient(reader.argument(), reader.argument()),
    ),
    **dict.fromkeys(
        ("binom", "tbinom", "dbinom"), lambda reader: _infix("choose", reader.argument(), reader.argument())
    ),
    "sqrt": _Reader.root,
    **dict.fromkeys(("overset", "stackrel"), _Reader.above),
    "underset": _Reader.below,
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
