"""Templates in languages other than English: the families that `languages.toml` names, and what English ones become."""

import re

from data_prep.wikitext.markers import REMOVED
from data_prep.wikitext.site import NumberStyle
from data_prep.wikitext.templates import ages, codes, convert, dates, inline, languages, measures, ships
from data_prep.wikitext.templates.arguments import Arguments, names
from data_prep.wikitext.templates.inline import Renderer

_MACHINE_NUMBER = re.compile(r"([-+−–]?)(\d+)((?:\.\d+)?)")
_LOCAL_NUMBER = re.compile(r"([-+−–]?)(\d+)((?:,\d+)?)")
_ENGLISH_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+")
_EXPONENTS = {"2": "²", "3": "³"}

# English templates that show English words.
_ENGLISH_WORDS = frozenset(
    [
        *(name for module in (ages, codes, dates, ships) for name in module.RENDERERS),
        *names(
            """
            b.|born|d.|died|p.|lit|literal|literally|literal translation|us patent|u.s. patent|uspatent|nee|née|born as
            pop density|population density|popdens|inrconvert|ordinal|spell number|spellnum|number to word
            spelled number|etymology|etym|respell|pronunciation respelling|usdict|quran|qref|quran-usc|cite quran
            harvtxt|harvcoltxt|citet
            """
        ),
    ]
)


def written(number: str, style: NumberStyle) -> str:
    """Writes a number as a language does: "1234567.5" is "1.234.567,5" in German.

    Other text, such as a number with thousands separators, is unchanged.
    """
    number = number.strip()
    match = _MACHINE_NUMBER.fullmatch(number) or (_LOCAL_NUMBER.fullmatch(number) if style.decimal == "," else None)
    if not match:
        return number
    sign, digits, decimals = match.groups()
    if len(digits) >= style.grouped_from and digits[0] != "0":
        groups, left = [digits[-3:]], digits[:-3]
        while left:
            groups.append(left[-style.groups_of :])
            left = left[: -style.groups_of]
        digits = style.thousands.join(reversed(groups))
    return f"{'-' if sign in ('−', '–') else sign}{digits}{style.decimal + decimals[1:] if decimals else ''}"


def _number(arguments: Arguments) -> str:
    """{{Zahl|1234567}} "1.234.567"."""
    return written(arguments[0], arguments.site.numbers)


def _quantity(arguments: Arguments) -> str:
    """{{unité|1234.5|km}} "1 234,5 km", {{unité|5|m|2}} "5 m²", {{unité|3|m||s|-1}} "3 m s^-1"."""
    text = written(arguments[0], arguments.site.numbers)
    units = arguments.positional[1:]
    for at in range(0, len(units), 2):
        unit, exponent = units[at], units[at + 1] if at + 1 < len(units) else ""
        if exponent:
            exponent = _EXPONENTS.get(exponent) or f"^{exponent}"
        if unit:
            text += f"{'' if unit[0] in '/%' and at else ' '}{unit}{exponent}"
    return text


def _quoted(arguments: Arguments) -> str:
    """A quotation with the marks that all languages know."""
    return f'"{arguments.get("text") or arguments[0]}"'


def _century(arguments: Arguments) -> str:
    """{{s|XIX|e}} "XIXe siècle", {{sap|V|e}} "Ve siècle av. J.-C."."""
    is_before = arguments.template.startswith("sap")
    return f"{arguments[0]}{arguments.get(1)} siècle{' av. J.-C.' if is_before else ''}"


def _linked(arguments: Arguments) -> str:
    """{{lien|langue=en|trad=Title|fr=Titre|texte=words}}: the words, or the title here."""
    return next(filter(None, map(arguments.get, ("texte", "tekst", "fr"))), "") or arguments[0]


_FAMILIES: dict[str, Renderer] = {
    "number": _number,
    "quantity": _quantity,
    "first": inline.first,
    "second": inline.second,
    "quoted": _quoted,
    "joined": inline.joined(" "),
    "century": _century,
    "linked": _linked,
    "shown_or_title": inline.second,
}


def own_renderer(arguments: Arguments) -> Renderer | None:
    """Returns the renderer of a template that the language's table names, if it does."""
    shown = arguments.site.shown.get(arguments.template)
    if shown is not None:
        return lambda _: shown
    family = arguments.site.templates.get(arguments.template)
    if family is not None:
        return _FAMILIES[family]
    head, colon, value = arguments.template.partition(":")
    if colon and (head == "formatnum" or arguments.site.templates.get(head) == "number"):
        return lambda _: written(value, arguments.site.numbers)
    return None


def adapted(name: str, renderer: Renderer) -> Renderer | None:
    """Returns the renderer of an English template for a page in another language; None if it shows English words.

    Foreign words come without the name of their language, quantities with the symbols of their units, and numbers as
    the language writes them.
    """
    if name in _ENGLISH_WORDS:
        return None
    if renderer in (languages.language, languages.chinese, languages.korean):
        return _foreign_words
    if name in convert.RENDERERS:
        return lambda arguments: _translated(renderer, arguments, {"abbr": "on"})
    if name in measures.RENDERERS:
        return lambda arguments: _translated(renderer, arguments, {})
    return renderer


def _foreign_words(arguments: Arguments) -> str:
    """{{lang-de|Haus|...}}, {{langx|de|Haus}}, {{zh|s=..}}: the words alone."""
    at = 1 if arguments.template == "langx" else 0
    keys = ("c", "s", "t", "hangul", "hanja")
    return arguments.get(at) or next(filter(None, map(arguments.get, keys)), REMOVED)


def _translated(renderer: Renderer, arguments: Arguments, options: dict[str, str]) -> str:
    arguments.named.update(options)
    text = renderer(arguments)
    return _ENGLISH_NUMBER.sub(lambda match: written(match[0].replace(",", ""), arguments.site.numbers), text)
