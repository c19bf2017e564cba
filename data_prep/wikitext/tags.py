"""Removes comments and extension tags (<ref>, <math>, <nowiki>, ...), whose content is not wikitext."""

import re

from data_prep.wikitext.latex import to_text
from data_prep.wikitext.markers import REMOVED, escape_markup

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

_BLANK = r"(?:~|\\[ ,;])"  # in LaTeX


def render_tags(text: str) -> str:
    """Removes comments and extension tags. Formulas become text; the content of <nowiki> is escaped."""
    if "<" not in text:
        return text
    while True:  # a reference can contain a comment, and a gallery a reference
        rendered = _EXTENSION.sub(_render, text)
        if rendered == text:
            return text
        text = rendered


def _render(match: re.Match[str]) -> str:
    if match["nowiki"] is not None:
        return escape_markup(match["nowiki"])
    if match["code"] is not None:
        return escape_markup(match["code"])
    if match["latex"] is not None:
        return escape_markup(_between_words(match, to_text(match["latex"])))
    if match[0].startswith("<!--"):
        return ""
    return REMOVED


def _between_words(match: re.Match[str], formula: str) -> str:
    """Adds the blanks that separate a formula from words around it: <math>~n~</math>photon."""
    before = match.string[max(0, match.start() - 1) : match.start()].isalnum() and re.match(_BLANK, match["latex"])
    after = match.string[match.end() : match.end() + 1].isalnum() and re.search(rf"{_BLANK}\Z", match["latex"])
    return f"{' ' * bool(before)}{formula}{' ' * bool(after)}"
