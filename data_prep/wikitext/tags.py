"""Renders tags: extension tags such as <ref>, formulas, <sup> and <sub>, and the variants of words, -{...}-."""

import html
import logging
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from data_prep.wikitext.markers import REMOVED, UNKNOWN_AMOUNT, escape_markup
from data_prep.wikitext.site import read_table

_DROPPED = (
    "gallery|timeline|imagemap|score|hiero|graph|templatedata|templatestyles|mapframe|maplink|inputbox|indicator"
    "|syntaxhighlight|source|categorytree|charinsert|references|ref|includeonly|section|pages|page|rss|phonos|chart"
)
_EXTENSION = re.compile(
    rf"""<!--.*?(?:-->|\Z)
    |<(?:{_DROPPED})\b[^<>]*?/>                                                 # nothing inside
    |<ref\b[^<>]*>[^<]*(?:<(?!/?ref\b)[^<]*)*</ref\s*>                          # never beyond another beginning
    |<(?P<shown>syntaxhighlight|source)\b[^<>]*?\sinline\b[^<>]*(?<!/)>
     (?P<code>[^<]*(?:<(?!/?(?P=shown)\b)[^<]*)*)</(?P=shown)\s*>
    |<(?P<dropped>{_DROPPED})\b[^<>]*>[^<]*(?:<(?!/?(?P=dropped)\b)[^<]*)*</(?P=dropped)\s*>
    |<nowiki\s*>(?P<nowiki>[^<]*(?:<(?!/?nowiki\b)[^<]*)*)</nowiki\s*>
    |<(?P<math>math|chem|ce)\b[^<>]*>(?P<latex>[^<]*(?:<(?!/?(?P=math)\b)[^<]*)*)</(?P=math)\s*>
    |<pre\b[^<>]*>[^<]*(?:<(?!/?pre\b)[^<]*)*</pre\s*>
    """,
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_MAX_EXTENSIONS = 6  # inside each other; the tags of outer ones are removed like other tags

_BLANK = r"(?:~|\\[ ,;])"  # in LaTeX
_NO_TEXT = re.compile(r"\\(?:left|right)\s*\.|\\(?:operatorname\*?|mbox|hbox|ce|vec)(?![A-Za-z])\s*")
_BLANK_BETWEEN_NAMES = re.compile(r"(\\(?!frac|sqrt|left|right)[A-Za-z]+) (?=\\)")
_LATEX_SCRIPT = re.compile(r"([\^_])\s*\{([^{}]*)\}")
_PART = r"((?:[^{}]|\{[^{}]*\})*?)"
_FRACTION = re.compile(rf"\\frac\s*\{{([^{{}}]*)\}}\s*\{{([^{{}}]*)\}}|\{{{_PART}\\over\b{_PART}\}}")
_ROOT = re.compile(r"\\sqrt\s*\[([^\[\]{}]*)\]\s*(?:\{([^{}]*)\}|(\w))")  # the third root of x: x^(1/3)
_ONE_TERM = re.compile(r"-?\w+|[-+*'′]|[^\x00-\x7f]|\\[A-Za-z]+\s*|\([^()]*\)")
MAX_FORMULA = 5_000
"""Characters of the longest formula that is read. A longer one, or one with too many nested groups, shows nothing."""

_SCRIPT = re.compile(r"<(sup|sub)\b[^<>]*>([^<>]*)</\1\s*>", re.IGNORECASE)
_MAX_SCRIPTS = 3  # of nested scripts; the tags of deeper ones are removed like other tags
_BEFORE_SCRIPT = re.compile(r"(.)(?:</[a-z]+\s*>|&[a-z]+;)*\Z", re.IGNORECASE | re.DOTALL)
# "1st", "3ème", "Mlle": letters that are raised by custom only.
_BY_CUSTOM = re.compile(r"st|nd|rd|th|er|re|e|ème|eme|o|a|[ºª]|lle|me|gr|[™®©℠]|tm|r|d", re.IGNORECASE)
# Symbols of units whose squares and cubes have signs of their own, which {{convert}} shows, too: "km²".
# A metre or a second follows a number or a stroke: alone, these letters are also names of variables.
_UNIT = re.compile(r"(?:(?<![^\W\d_])(?:[kcdmnµ]m|mi|ft|yd)|(?:\d|\d[ \u00a0]|\d&nbsp;|/)(?:m|in)|/s)\Z")
_RAISED = {"2": "²", "3": "³"}
_WHOLE_SCRIPT = re.compile(r"[-+−–±]?[\w.,]+|\d*[-+−–]|[*†‡§′″°]+|\([^()]*\)|\[[^\[\]]*\]")

_INNERMOST_VARIANTS = re.compile(r"-\{((?:(?!-\{|\}-)[^\n])*)\}-")
_MAX_VARIANTS = 3  # of nested ones
_VARIANT = re.compile(r"\s*+(?:[^;:|{}=]*+=>)?\s*+([a-z]{2,3}(?:-[a-z]+)?)\s*:(.*)", re.DOTALL)
_HIDING_FLAGS = frozenset("HT-")  # flags of rules and titles, which show nothing


def render_tags(text: str) -> str:
    """Removes comments and extension tags. Formulas become text; the content of <nowiki> is escaped."""
    if "<" not in text:
        return text
    for _ in range(_MAX_EXTENSIONS):  # a reference can contain a comment, and a gallery a reference
        before, text = text, _EXTENSION.sub(_render, text)
        if before == text:
            break
    return text


def _render(match: re.Match[str]) -> str:
    if match["nowiki"] is not None:
        return escape_markup(match["nowiki"])
    if match["code"] is not None:
        return escape_markup(match["code"])
    if match["latex"] is not None:
        return escape_markup(_between_words(match, formula_to_text(match["latex"])))
    if match[0].startswith("<!--"):
        return ""
    return REMOVED


def formula_to_text(latex: str) -> str:
    """Writes LaTeX in one line, by pylatexenc: `\\frac{a}{b}` a/b, `x^{n-1}` x^(n-1), `\\alpha` α, `\\leq` ≤.

    Any string is accepted. A command that is not known shows UNKNOWN_AMOUNT. The work grows linearly with the length.
    """
    if len(latex) > MAX_FORMULA:
        return ""
    latex = re.sub(r"\\[tdc]frac", r"\\frac", _NO_TEXT.sub("", latex))
    latex = _BLANK_BETWEEN_NAMES.sub(r"\1~", latex)  # which LaTeX would drop
    for _ in range(3):  # the innermost groups first
        latex = _LATEX_SCRIPT.sub(lambda m: f"{m[1]}{_bracketed(m[2])}", latex)
        latex = _ROOT.sub(lambda m: f"{_bracketed(m[2] or m[3])}^(1/{m[1].strip()})", latex)
        latex = _FRACTION.sub(lambda m: f"{_bracketed(m[1] or m[3])}/{_bracketed(m[2] or m[4])}", latex)
    try:
        converter, commands = _converter()
        return " ".join(converter.latex_to_text(latex, latex_context=commands).split())
    except (RecursionError, ValueError, TypeError, LookupError):  # what the library raises for damaged formulas
        return ""


@cache
def _converter() -> tuple[Any, Any]:
    """Returns the converter, and how many arguments each command has."""
    from pylatexenc import latex2text, latexwalker, macrospec  # take a tenth of a second to import

    logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # it warns of each damaged formula
    table = read_table("formulas.toml")
    texts, commands = latex2text.get_default_latex_context_db(), latexwalker.get_default_latex_context_db()
    rows = [(name, "", text) for text, listed in table["shown"].items() for name in listed.split()]
    rows += [(name, arguments, text) for name, (arguments, text) in table["arguments"].items()]
    rows += [(name, arguments, None) for arguments, listed in table["nothing"].items() for name in listed.split()]
    rows += [(name, "{", texts.get_macro_spec(other).simplify_repl) for name, other in table["same"].items()]
    shown = [latex2text.MacroTextSpec(name, text, discard=True) for name, _, text in rows]
    texts.add_context_category("table", macros=shown, prepend=True)
    commands.add_context_category("table", macros=[macrospec.MacroSpec(*row[:2]) for row in rows], prepend=True)
    texts.set_unknown_macro_spec(latex2text.MacroTextSpec("", UNKNOWN_AMOUNT))
    return latex2text.LatexNodes2Text(texts, math_mode="text", strict_latex_spaces="based-on-source"), commands


def _bracketed(term: str | None) -> str:
    term = (term or "").strip()
    return term if not term or _ONE_TERM.fullmatch(term) else f"({term})"


def _between_words(match: re.Match[str], formula: str) -> str:
    """Adds the blanks that separate a formula from words around it: <math>~n~</math>photon."""
    before = match.string[max(0, match.start() - 1) : match.start()].isalnum() and re.match(_BLANK, match["latex"])
    after = match.string[match.end() : match.end() + 1].isalnum() and re.search(rf"{_BLANK}\Z", match["latex"])
    return f"{' ' * bool(before)}{formula}{' ' * bool(after)}"


def render_scripts(text: str) -> str:
    """Replaces <sup> and <sub> by plain text: "10^6", "x^(n+1)", "a_n", but "CO2", "H2O(l)", "1st", "14C"."""
    if "<su" not in text and "<SU" not in text:
        return text
    for _ in range(_MAX_SCRIPTS):  # from the innermost outwards
        text = _SCRIPT.sub(_render_script, text)
    return text


def _render_script(match: re.Match[str]) -> str:
    base = _BEFORE_SCRIPT.search(match.string[max(0, match.start() - 40) : match.start()])
    after = match.string[match.end() : match.end() + 1]
    raised = _RAISED.get(match[2].strip()) if match[1].lower() == "sup" else None
    if raised is not None and _UNIT.search(match.string[max(0, match.start() - 10) : match.start()]):
        return raised
    return script(match[1].lower(), match[2], base[1] if base else "", after)


def script(kind: str, content: str, before: str, after: str = "") -> str:
    """Returns one script as text. kind: "sup" or "sub". before, after: the characters around it, "" for none."""
    content = html.unescape(content).strip()
    if not content or not (before.isalnum() or before in tuple(")]}|′'")):
        return content
    if kind == "sub":
        # Digits after a letter and "(aq)" are formulas and stay as they are. Anything else would merge with its base.
        is_of_formula = (content.isdecimal() and not before.isdecimal()) or (content[0] + content[-1] == "()")
        return content if is_of_formula else f"_{_grouped(content, after)}"
    is_by_custom = content.isalpha() and (before.isdecimal() or len(content) > 1) and _BY_CUSTOM.fullmatch(content)
    return content if is_by_custom else f"^{_grouped(content, after)}"


def _grouped(content: str, after: str) -> str:
    runs_on = content[-1].isalnum() and after.isdecimal()  # 5d<sup>10</sup>6s
    return content if _WHOLE_SCRIPT.fullmatch(content) and not runs_on else f"({content})"


def choose_variants(text: str, preferred: Sequence[str]) -> str:
    """Replaces each "-{...}-" by the words of the first variant in `preferred` that it has, or else of its first one.

    "-{words}-" are words that are the same in all variants. Rules ("-{H|...}-") and titles ("-{T|...}-") show nothing.
    """
    if "-{" not in text:
        return text
    for _ in range(_MAX_VARIANTS):  # from the innermost outwards
        text = _INNERMOST_VARIANTS.sub(lambda match: _chosen(match[1], preferred), text)
    return text


def _chosen(content: str, preferred: Sequence[str]) -> str:
    flags, bar, words = content.rpartition("|")
    if not bar:
        words = content
    elif _HIDING_FLAGS & set(flags.replace(" ", "").split(";")):
        return ""
    parts = re.split(r";(?=\s*+(?:[^;:]*=>)?\s*+[a-z]{2,3}(?:-[a-z]+)?\s*:|\s*$)", words)
    options = list(filter(None, map(_VARIANT.fullmatch, parts)))
    words_of_variant = {option[1]: option[2].strip() for option in reversed(options)}
    for variant in (*preferred, *(option[1] for option in options)):
        if variant in words_of_variant:
            return words_of_variant[variant]
    return words
