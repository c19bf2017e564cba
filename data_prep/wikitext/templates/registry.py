"""Renders {{templates}} that stand inside sentences as the words that a reader sees.

The definitions of templates are pages of the wiki, which are not available here. So the modules imported below render
the families of templates that contain words. The families were chosen by their counts in articles of the English
Wikipedia (docs/data.md). Every other template becomes REMOVED, or its first argument after words that need one ("a
population of {{...}}"). Pages in other languages use many of the same templates, and some of their own
(`languages.toml`).
"""

import re
from datetime import date

from data_prep.wikitext.markers import REMOVED
from data_prep.wikitext.site import ENGLISH_SITE, Site, template_name
from data_prep.wikitext.templates import dates, identifiers, languages, quantities, words
from data_prep.wikitext.templates.arguments import FAMILIES, Arguments, Renderer, english_words, names
from data_prep.wikitext.templates.numbers import grouped

FAMILY_MODULES = (dates, identifiers, languages, quantities, words)
"""Their import registers the families."""
_DROPPED = frozenset(names(english_words()["dropped"]["names"]))
_DROPPED_BEGINNINGS = tuple(names(english_words()["dropped"]["beginnings"]))
# Words after which a sentence cannot end: the template is its next word.
_WAITING = re.compile(
    r"(?:^|[\s(“\"])(?:a|an|the|of|at|by|to|from|for|than|between|about|around|nearly|over|under|into|some)\s+\Z",
    re.IGNORECASE,
)


def render_template(content: str, before: str, written: date | None = None, site: Site = ENGLISH_SITE) -> str:
    """Returns what {{content}} shows, or REMOVED if it is not part of a sentence.

    Args:
        content: the text between the braces, without anything nested.
        before: the text before the template; only its end matters.
        written: when the page was saved, for templates that show the date.
        site: the wiki that the page is from.
    """
    name, _, rest = content.partition("|")
    name = template_name(name)
    if name in _DROPPED and name not in site.templates:
        return REMOVED
    renderer = FAMILIES[name].render if name in FAMILIES else _find_by_pattern(name)
    if renderer is None and name.startswith(_DROPPED_BEGINNINGS) and name not in site.templates:
        return REMOVED
    arguments = Arguments.parse(name, rest, written, site)
    if not site.is_english:
        renderer = languages.find_local_renderer(arguments) or (renderer and languages.adapt_renderer(name, renderer))
    if renderer is not None:
        try:
            return renderer(arguments)
        # The template itself would report an error for such arguments. It is removed like an unknown one.
        except (LookupError, ValueError, ArithmeticError):
            return REMOVED
    # An argument `date` belongs to a remark to editors: {{what happened|date=May 2016}}.
    if site.is_english and "date" not in arguments.named and _WAITING.search(before[-12:]):
        return arguments.get(0, REMOVED)
    return REMOVED


def _find_by_pattern(name: str) -> Renderer | None:
    """Returns the renderer of a template whose name begins or ends as all names of a family do."""
    if name.startswith("lang-"):
        return languages.language
    if name.startswith(("ipa-", "ipac-")):
        return languages.pronunciation
    # {{citation needed span|the words in doubt|date=...}}
    if name.startswith(("script/", "lang/")) or name.endswith((" span", "-span", "cnspan")):
        return words.first
    head, colon, value = name.partition(":")
    if not colon:
        return None
    if head == "formatnum":
        return lambda arguments: grouped(value)
    if head == "plural":
        return lambda arguments: arguments[0] if value.strip() == "1" else arguments[1]
    if head in ("lc", "lcfirst", "uc", "ucfirst"):
        shown = {"uc": value.upper(), "ucfirst": value[:1].upper() + value[1:]}.get(head, value)
        return lambda arguments: shown
    return None
