"""Renders {{templates}} that stand inside sentences as the words that a reader sees.

arguments    the arguments of a template, and the patterns of `templates.toml`
words        functions of templates of words, names, languages and sounds
quantities   functions of templates of numbers, quantities, money, dates and ages

The definitions of templates are pages of the wiki, which are not available here. So `templates.toml` says what the
templates show that contain words: a pattern, or a function of the modules above. They were chosen by their counts in
articles of the English Wikipedia (docs/data.md). Every other template becomes REMOVED, or its first argument after
words that need one ("a population of {{...}}"). Pages in other languages use many of the same templates, and those of
`languages.toml`.
"""

import re
from datetime import date

from data_prep.wikitext.markers import EQUALS, PIPE, REMOVED, escape_markup
from data_prep.wikitext.site import ENGLISH_SITE, Site, read_table, template_name
from data_prep.wikitext.templates import quantities, words
from data_prep.wikitext.templates.arguments import RENDERERS, Arguments, names

RENDERER_MODULES = (quantities, words)
"""Their import registers the functions."""
_TABLE = read_table("templates.toml")
_DROPPED = frozenset(names(_TABLE["dropped"]["names"]))
_DROPPED_BEGINNINGS = tuple(names(_TABLE["dropped"]["beginnings"]))
_SHOWN, _SHOWN_IN_ENGLISH = (
    {name: pattern for pattern, listed in _TABLE[key].items() for name in names(listed)} for key in ("any", "english")
)
_SHOWN |= {name: sign + "{1?#}" for sign, listed in _TABLE["money"].items() for name in names(listed)}
_MARKERS = {"|": PIPE, "=": EQUALS}
# Signs of markup are escaped, but for the apostrophe: two of them are quotation marks, not italics.
_SIGNS = {
    name: _MARKERS.get(sign) or (sign if "'" in sign else escape_markup(sign))
    for sign, listed in _TABLE["signs"].items()
    for name in names(listed)
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
    pattern = site.templates.get(name)
    if pattern is None and name in _DROPPED:
        return REMOVED
    if pattern is None and name in _SIGNS:
        return _SIGNS[name]
    arguments = Arguments.parse(name, rest, written, site)
    if pattern is None:
        pattern = _find_pattern(name, arguments)
    if pattern is not None:
        try:
            return RENDERERS[pattern[:-2]](arguments) if pattern.endswith("()") else arguments.show(pattern)
        # The template itself would report an error for such arguments. It is removed like an unknown one.
        except (LookupError, ValueError, ArithmeticError):
            return REMOVED
    # An argument `date` belongs to a remark to editors: {{what happened|date=May 2016}}.
    is_dropped = name.startswith(_DROPPED_BEGINNINGS) or "date" in arguments.named or not site.is_english
    return REMOVED if is_dropped or not _WAITING.search(before[-12:]) else arguments.get(0, REMOVED)


def _find_pattern(name: str, arguments: Arguments) -> str | None:
    """Returns the pattern of a template by its name, or by how its name begins or ends.

    Of {{formatnum:1234}} and the like, the value becomes the first argument.
    """
    site = arguments.site
    if (pattern := _SHOWN.get(name)) is not None:
        return pattern
    if name in _SHOWN_IN_ENGLISH:
        return _SHOWN_IN_ENGLISH[name] if site.is_english else None
    if name.startswith(("lang-", "ipa-", "ipac-")):
        return "language()" if name[0] == "l" else "pronunciation()"
    # {{citation needed span|the words in doubt|date=...}}
    if name.startswith(("script/", "lang/")) or name.endswith((" span", "-span", "cnspan")):
        return "{1}"
    head, colon, value = name.partition(":")
    if colon and (pattern := site.templates.get(head) or _TABLE["with_colon"].get(head)):
        arguments.template = head
        arguments.positional.insert(0, value.strip())
        return str(pattern)
    return None
