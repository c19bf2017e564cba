"""Renders {{templates}} that stand inside sentences as the words that a reader sees.

The definitions of templates are pages of the wiki, which are not available here. So the modules imported below name the
families of templates that contain words. The families were chosen by their counts in articles of the English Wikipedia
(docs/data.md). Every other template becomes REMOVED, or its first argument after words that need one ("a population of
{{...}}"). Pages in other languages use many of the same templates, and some of their own (`local`).
"""

import re
from datetime import date

from data_prep.wikitext.markers import REMOVED
from data_prep.wikitext.site import ENGLISH_SITE, Site, template_name
from data_prep.wikitext.templates import ages, codes, convert, dates, inline, languages, local, measures, ships, signs
from data_prep.wikitext.templates.arguments import Arguments
from data_prep.wikitext.templates.dropped import DROPPED, DROPPED_PREFIXES
from data_prep.wikitext.templates.inline import Renderer
from data_prep.wikitext.templates.numbers import grouped

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
    if name in DROPPED and name not in site.templates:
        return REMOVED
    renderer = _RENDERERS.get(name) or _family(name)
    if renderer is None and name.startswith(DROPPED_PREFIXES) and name not in site.templates:
        return REMOVED
    arguments = Arguments.parse(name, rest, written, site)
    if not site.is_english:
        renderer = local.own_renderer(arguments) or (renderer and local.adapted(name, renderer))
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


def _family(name: str) -> Renderer | None:
    """Returns the renderer of a template whose name begins or ends as all names of a family do."""
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
