"""Renders {{templates}} that stand inside sentences as the words that a reader sees.

arguments           the arguments of a template, and the patterns of `templates.toml`
functions           functions of the templates that no pattern can show

The definitions of templates are pages of the wiki, which are not available here. So `templates.toml` says what the
templates show that contain words: a pattern, or a function of the modules above. They were chosen by their counts in
articles of the English Wikipedia (docs/data.md). Pages in other languages use many of the same templates, and those of
`languages.toml`. Inside a sentence, any other template becomes its first argument if that is a few words or a number.
Elsewhere it becomes REMOVED. A sentence with a function or variable of MediaWiki itself, such as {{#if:...}} or
{{PAGENAME}}, is removed.
"""

import re

from data_prep.wikitext.markers import EQUALS, PIPE, REMOVED, UNKNOWN_AMOUNT, escape_markup
from data_prep.wikitext.site import ENGLISH_SITE, Site, read_table, template_name
from data_prep.wikitext.templates import functions
from data_prep.wikitext.templates.arguments import Arguments, names

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
_VARIABLES, _FUNCTIONS = (frozenset(names(_TABLE["mediawiki"][key])) for key in ("variables", "functions"))
_REMARK_KEYS = frozenset(names(_TABLE["dropped"]["keys"]))
# Inside a sentence: after a word and a blank, or "l'", or "(". References follow a word without a blank.
_IN_SENTENCE = re.compile(r"(?:[\w,:°%)\]»”\"’'–—][ \u00a0]+[(\[«„“\"‘']*|[^\W\d_]['’]|\w[ \u00a0]?[(（「])\Z")
_KNOWS_AMOUNTS = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names(_TABLE['amounts']['names'])))})")
_LANGUAGE_CODE = re.compile(r"[a-zà-ž]{2,3}")
# A few words: no markup, address, file, code of a country, number of Wikidata, or date of a remark.
_FEW_WORDS = re.compile(
    r"(?!https?:|www\.|(?![IVXLC]+$)[A-Z]{2,3}$|Q\d+$|\d{4}-\d\d-\d\d$)(?=.*\w)[^\[\]{}<>=\n\ue000-\ue0ff]{1,60}(?<!\.\w{3})"
)


def render_template(content: str, before: str, site: Site = ENGLISH_SITE) -> str:
    """Returns what {{content}}, with nothing nested, shows behind `before`; REMOVED if outside of a sentence."""
    head, colon, _ = content.partition(":")
    keyword = head.strip().lower()
    if keyword in _VARIABLES or (colon and keyword in _FUNCTIONS):  # of MediaWiki itself
        return UNKNOWN_AMOUNT
    template, _, rest = content.partition("|")
    name = template_name(template)
    pattern = site.templates.get(name)
    if site.named is not None and site.named.fullmatch(template.strip()):
        return template.strip()
    if pattern is None and name in _DROPPED:
        return REMOVED
    if pattern is None and name in _SIGNS:
        return _SIGNS[name]
    arguments = Arguments.parse(name, rest, site)
    if pattern is None:
        pattern = _find_pattern(name, arguments)
    if pattern is not None:
        try:
            text = vars(functions)[pattern[:-2]](arguments) if pattern.endswith("()") else arguments.show(pattern)
            return text or REMOVED
        # The template itself would report an error for such arguments. It is removed like an unknown one.
        except (LookupError, ValueError, ArithmeticError):
            return UNKNOWN_AMOUNT if UNKNOWN_AMOUNT in content else REMOVED
    return REMOVED if name.startswith(_DROPPED_BEGINNINGS) else _show_unknown(arguments, before)


def _show_unknown(arguments: Arguments, before: str) -> str:
    """Returns the first argument of a template of unknown name, with a unit if that follows, or REMOVED.

    If the first is the code of a language, the second is returned. If the template knows amounts, or one that nobody
    knows is among its arguments, UNKNOWN_AMOUNT is returned.
    """
    is_in_sentence = _IN_SENTENCE.search(before)
    is_unknown = UNKNOWN_AMOUNT in "".join((*arguments.positional, *arguments.named.values()))
    if is_unknown and before.endswith(("|", "=")):  # an argument of another template
        return UNKNOWN_AMOUNT
    if is_in_sentence and (is_unknown or _KNOWS_AMOUNTS.search(arguments.template)):
        return UNKNOWN_AMOUNT
    words, second = arguments.get(0), arguments.get(1)
    if _LANGUAGE_CODE.fullmatch(words):
        words, second = second, ""
    # An argument `date` belongs to a remark to editors: {{what happened|date=May 2016}}.
    is_remark = not _REMARK_KEYS.isdisjoint(arguments.named)
    if is_remark or not is_in_sentence or not _FEW_WORDS.fullmatch(words):
        return REMOVED
    if not words[-1].isdecimal():
        return words
    if second.replace(".", "").isdecimal():  # a date or a calculation
        return REMOVED
    unit = functions.find_unit(second)
    return f"{words} {unit.symbol}" if unit else words


def _find_pattern(name: str, arguments: Arguments) -> str | None:
    """Returns the pattern of a template by its name, or by how its name begins or ends.

    Of {{formatnum:1234}} and the like, the value becomes the first argument.
    """
    site = arguments.site
    if (pattern := _SHOWN.get(name)) is not None:
        return pattern
    if name in _SHOWN_IN_ENGLISH:
        return _SHOWN_IN_ENGLISH[name] if site.is_english else ""
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
