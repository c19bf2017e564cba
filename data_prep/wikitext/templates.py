"""{{Templates}} that stand inside sentences, rendered as the words that a reader sees.

Without the wiki's own template pages there is no general way, so the families that carry words are named in the modules
imported below; their counts in the English Wikipedia decided which (docs/data.md). Every other template leaves a HOLE,
or its first argument where the sentence is plainly waiting for one ("a population of {{...}}").
"""

import re
from datetime import date

from data_prep.wikitext import ages, codes, convert, dates, inline, languages, measures, ships, signs
from data_prep.wikitext.arguments import Arguments
from data_prep.wikitext.dropped import DROPPED, DROPPED_PREFIXES
from data_prep.wikitext.inline import Renderer
from data_prep.wikitext.marks import HOLE
from data_prep.wikitext.numbers import grouped

_RENDERERS: dict[str, Renderer] = {
    **inline.RENDERERS,
    **signs.RENDERERS,
    **convert.RENDERERS,
    **measures.RENDERERS,
    **dates.RENDERERS,
    **ages.RENDERERS,
    **ships.RENDERERS,
    **codes.RENDERERS,
    **languages.RENDERERS,
}
# A sentence cannot end here: the template held its next word.
_WAITING = re.compile(
    r"(?:^|[\s(“\"])(?:a|an|the|of|at|by|to|from|for|than|between|about|around|nearly|over|under|into|some)\s+\Z",
    re.IGNORECASE,
)


def render_template(content: str, before: str, written: date | None = None) -> str:
    """What {{content}} shows.

    content: between the braces, with nothing nested left in it. before: the text that it follows, of which only the end
    matters. written: when the page was saved, for the templates that show the date. Returns a HOLE for what is no part
    of a sentence.
    """
    name, _, rest = content.partition("|")
    name = " ".join(name.replace("_", " ").lower().split())
    if name in DROPPED:
        return HOLE
    renderer = _RENDERERS.get(name) or _family(name)
    if renderer is None and name.startswith(DROPPED_PREFIXES):
        return HOLE
    arguments = Arguments.parse(name, rest, written)
    if renderer is not None:
        try:
            return renderer(arguments)
        # Arguments that the template would complain about as well: it is then dropped like an unknown one.
        except (LookupError, ValueError, ArithmeticError):
            return HOLE
    # A date is the mark of a remark to editors: {{what happened|date=May 2016}}.
    if "date" not in arguments.named and _WAITING.search(before[-12:]):
        return arguments.get(0, HOLE)
    return HOLE


def _family(name: str) -> Renderer | None:
    """The renderer of a template whose name says which member of a family it is."""
    if name.startswith("lang-"):
        return languages.language
    if name.startswith(("ipa-", "ipac-")):
        return languages.pronunciation
    if name.startswith(("script/", "lang/")):
        return inline.first
    # {{citation needed span|the words in doubt|date=...}}
    if name.endswith((" span", "-span", "cnspan")):
        return inline.first
    head, colon, value = name.partition(":")
    if colon and head == "formatnum":
        return lambda arguments: grouped(value)
    if colon and head == "plural":
        return lambda arguments: arguments[0] if value.strip() == "1" else arguments[1]
    if colon and head in ("lc", "lcfirst"):
        return lambda arguments: value
    if colon and head in ("uc", "ucfirst"):
        return lambda arguments: value.upper() if head == "uc" else value[:1].upper() + value[1:]
    return None
