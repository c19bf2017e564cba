"""Turns LaTeX formulas into a line of text, so that the sentence around a formula stays whole.

pylatexenc reads the formulas and knows the symbols. The rules for blanks, scripts and fractions are in this file.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

MAX_LENGTH = 5_000
"""Characters of the longest formula that is read. A longer one, or one with too many nested groups, shows nothing."""

_GROUP = r"((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*?)"  # with groups of two levels inside
_INFIX = re.compile(rf"\{{{_GROUP}\\(over|choose|atop)\b{_GROUP}\}}")
_SCRIPT = re.compile(r"([\^_])\s*\{([^{}]*)\}")
_ONE_TERM = re.compile(r"-?\w+|[-+*'′]|[^\x00-\x7f]|\\[A-Za-z]+\s*")
_NO_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_BEFORE_BLANK = re.compile(r"\\([A-Za-z]+)(?=\s)")


_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}


def _grouped(term: str) -> str:
    is_long = re.search(r"(?<!^)[-+\s]", term) and not re.fullmatch(r"\([^()]*\)", term)
    return f"({term})" if is_long else term


_COMMANDS: dict[str, tuple[str, Callable[..., str]]] = {
    **dict.fromkeys(("frac", "tfrac", "dfrac", "cfrac", "over"), ("{{", lambda a, b: f"{_grouped(a)}/{_grouped(b)}")),
    **dict.fromkeys(("binom", "tbinom", "dbinom", "choose"), ("{{", "({} choose {})".format)),
    "atop": ("{{", "{}, {}".format),
    **dict.fromkeys(("overset", "stackrel"), ("{{", "{1}^{0}".format)),
    "underset": ("{{", "{1}_{0}".format),
    "operatorname": ("{", "{} ".format),
    "pmod": ("{", "(mod {})".format),
    "tag": ("{", " ({})".format),
    "sqrt": ("[{", lambda index, term: f"{_ROOTS.get(index, f'root {index} of ')}{_grouped(term)}"),
    **dict.fromkeys(("mbox", "hbox", "ce", "vec"), ("{", "{}".format)),
    **dict.fromkeys(("xrightarrow", "xmapsto"), ("[{", lambda _, above: f" –{above}→ " if above else " → ")),
    **{name: ("", lambda name=name: name) for name in ("R", "N", "Z", "Q", "C")},
    "bmod": ("", lambda: "mod"),
    **dict.fromkeys(("label", "hspace", "vspace", "phantom", "color"), ("{", lambda _: "")),
}
"""The arguments of commands that the library lacks or shows otherwise, and what they show."""


def to_text(latex: str) -> str:
    """Writes LaTeX as a reader would type it in one line: `\\frac{a}{b}` a/b, `x^{2}` x^2, `\\alpha` α, `\\leq` ≤.

    Any string is accepted. Commands that are not known show nothing. The work grows linearly with the length.
    """
    if len(latex) > MAX_LENGTH:
        return ""
    latex = _NO_DELIMITER.sub("", latex)
    for _ in range(3):  # the innermost groups first
        latex = _INFIX.sub(r"\\\2{\1}{\3}", latex)
        latex = _SCRIPT.sub(lambda m: f"{m[1]}{m[2]}" if _ONE_TERM.fullmatch(m[2]) else f"{m[1]}({m[2]})", latex)
    convert, has_arguments = _library()
    # LaTeX drops the blank behind a name; a reader of the line needs it.
    latex = _BEFORE_BLANK.sub(lambda m: m[0] if has_arguments(m[1]) else f"{m[0]}{{}}", latex)
    try:
        return " ".join(convert(latex).split())
    except (RecursionError, ValueError, TypeError, IndexError):  # what the library raises for damaged formulas
        return ""


@cache
def _library() -> tuple[Callable[[str], str], Callable[[str], bool]]:
    """What converts a formula, and whether a command has arguments. The import takes a tenth of a second."""
    from pylatexenc import latex2text, latexwalker, macrospec

    known, shown = latexwalker.get_default_latex_context_db(), latex2text.get_default_latex_context_db()
    own = [macrospec.std_macro(name, spec) for name, (spec, _) in _COMMANDS.items()]
    known.add_context_category("formulas", own, prepend=True)
    rules = [latex2text.MacroTextSpec(name, _text_of_arguments(*rule)) for name, rule in _COMMANDS.items()]
    shown.add_context_category("formulas", rules, prepend=True)
    converter = latex2text.LatexNodes2Text(shown, math_mode="text")

    def convert(latex: str) -> str:
        nodes, *_ = latexwalker.LatexWalker(latex, latex_context=known, tolerant_parsing=True).get_latex_nodes()
        return str(converter.nodelist_to_text(nodes))

    def has_arguments(name: str) -> bool:
        spec = known.get_macro_spec(name)
        return spec is not None and bool(spec.args_parser.argspec)

    return convert, has_arguments


def _text_of_arguments(spec: str, text: Callable[..., str]) -> Callable[..., str]:
    """As the library calls it for a command. An argument that a damaged formula lacks is empty."""

    def show(node: Any, l2tobj: Any) -> str:
        given = (node.nodeargd and node.nodeargd.argnlist) or ()
        texts = [l2tobj.nodelist_to_text([one]).strip() if one is not None else "" for one in given]
        return text(*texts, *[""] * (len(spec) - len(texts)))

    return show
