"""Comments and extension tags: <ref>, <math>, <nowiki>, <gallery>, ... whose content is no wikitext."""

import re

from data_prep.wikitext.latex import to_text
from data_prep.wikitext.marks import HOLE, shield

_DROPPED = (
    "gallery|timeline|imagemap|score|hiero|graph|templatedata|templatestyles|mapframe|maplink|inputbox|indicator"
    "|syntaxhighlight|source|categorytree|charinsert|references|ref|includeonly|section|pages|page|rss|phonos|chart"
)
_EXTENSION = re.compile(
    rf"""<!--.*?(?:-->|\Z)
    |<(?:{_DROPPED})\b[^<>]*?/>                                                 # nothing inside
    |<ref\b[^<>]*>[^<]*(?:<(?!/?ref\b)[^<]*)*</ref\s*>                          # never beyond another beginning
    |<(?P<dropped>{_DROPPED})\b[^<>]*>[^<]*(?:<(?!/?(?P=dropped)\b)[^<]*)*</(?P=dropped)\s*>
    |<nowiki\s*>(?P<nowiki>[^<]*(?:<(?!/?nowiki\b)[^<]*)*)</nowiki\s*>
    |<(?P<math>math|chem|ce)\b[^<>]*>(?P<latex>[^<]*(?:<(?!/?(?P=math)\b)[^<]*)*)</(?P=math)\s*>
    |<pre\b[^<>]*>[^<]*(?:<(?!/?pre\b)[^<]*)*</pre\s*>
    """,
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)

_BLANK = r"(?:~|\\[ ,;])"  # in LaTeX


def render_tags(text: str) -> str:
    """Wikitext without comments and extension tags: formulas become text, <nowiki> is shielded, the rest is dropped."""
    if "<" not in text:
        return text
    while True:  # a reference can hold a comment, and a gallery a reference
        rendered = _EXTENSION.sub(_render, text)
        if rendered == text:
            return text
        text = rendered


def _render(match: re.Match[str]) -> str:
    if match["nowiki"] is not None:
        return shield(match["nowiki"])
    if match["latex"] is not None:
        return shield(_between_words(match, to_text(match["latex"])))
    if match[0].startswith("<!--"):
        return ""
    return HOLE


def _between_words(match: re.Match[str], formula: str) -> str:
    """A formula with the blanks at its ends that keep it from words: <math>~n~</math>photon."""
    before = match.string[max(0, match.start() - 1) : match.start()].isalnum() and re.match(_BLANK, match["latex"])
    after = match.string[match.end() : match.end() + 1].isalnum() and re.search(rf"{_BLANK}\Z", match["latex"])
    return f"{' ' * bool(before)}{formula}{' ' * bool(after)}"
