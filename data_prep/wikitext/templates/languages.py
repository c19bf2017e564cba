"""Templates of foreign words and of pronunciation, and what templates show on pages in other languages."""

import re

from data_prep.wikitext.markers import PRONUNCIATION, PRONUNCIATION_END, REMOVED
from data_prep.wikitext.templates.arguments import FAMILIES, Arguments, Renderer, english_words, names, shows
from data_prep.wikitext.templates.numbers import grouped_in_style
from data_prep.wikitext.templates.words import first, joined, second

_NAMES = dict(entry.split(maxsplit=1) for entry in english_words()["languages"]["names"].split(","))
# Settings among the arguments of {{IPA-xx}} and {{IPAc-xx}}; the others are sounds.
_NOT_SOUNDS = frozenset(names("lang|local|pron|also|audio|help|icon|small|us|uk|en|or|label|all"))
_CHINESE = {"c": "Chinese", "s": "simplified Chinese", "t": "traditional Chinese", "p": "pinyin", "hp": "pinyin"}
_CHINESE |= {"w": "Wade–Giles", "j": "Jyutping", "l": "lit."}
_ENGLISH_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+")
_EXPONENTS = {"2": "²", "3": "³"}


@shows("langx")
def language(arguments: Arguments) -> str:
    """{{lang-ru|Москва|Moskva|Moscow}} and {{langx|ru|...}}: "Russian: Москва, Moskva, lit. 'Moscow'"."""
    is_general = arguments.template == "langx"
    code = arguments[0] if is_general else arguments.template.removeprefix("lang-")
    words = arguments.positional[1:] if is_general else arguments.positional
    words = words + [""] * (3 - len(words))
    if not words[0]:
        return REMOVED
    text = words[0]
    if transliteration := arguments.get("tr") or arguments.get("translit") or arguments.get("r") or words[1]:
        text += f", {transliteration}"
    if meaning := arguments.get("lit") or arguments.get("translation") or words[2]:
        text += f", lit. '{meaning}'"
    name = _NAMES.get(code) or _NAMES.get(code.partition("-")[0])
    return f"{name}: {text}" if name and arguments.get("label") != "none" else text


@shows("ipa|ipalink|ipaslink|ipablink|ipa link|pron-en|ipavlink")
def pronunciation(arguments: Arguments) -> str:
    """{{IPA-fr|mo|lang}} "[mo]", {{IPAc-en|m|oʊ}} "/moʊ/", {{IPA|/mo/}} "/mo/"; `repair` decides whether they stay."""
    sounds = arguments.positional
    # Since 2023 {{IPA|fr|mo}} has taken the place of {{IPA-fr|mo}}.
    is_of_language = arguments.template.startswith("ipa-") or (len(sounds) > 1 and sounds[0] in _NAMES)
    if arguments.template == "ipa" and is_of_language:
        sounds = sounds[1:]
    sounds = [
        sound
        for sound in sounds
        if sound and sound.lower() not in _NOT_SOUNDS and not sound.lower().endswith((".ogg", ".wav", ".oga", ".mp3"))
    ]
    if not sounds:
        return REMOVED
    if arguments.template.startswith("ipac"):
        text = f"/{''.join(sounds)}/"
    else:
        text = f"[{sounds[0]}]" if is_of_language and sounds[0][0] not in "/[⟨" else sounds[0]
    return f"{PRONUNCIATION}{text}{PRONUNCIATION_END}"


@shows("respell|pronunciation respelling|usdict", kind="english")
def respelling(arguments: Arguments) -> str:
    """{{respell|al|BEE|doh}}: "al-BEE-doh"."""
    return f"{PRONUNCIATION}{arguments.join('-')}{PRONUNCIATION_END}"


@shows("zh|lang-zh")
def chinese(arguments: Arguments) -> str:
    """{{zh|c=北京|p=Běijīng}}: "Chinese: 北京; pinyin: Běijīng"."""
    is_labelled = arguments.get("labels") != "no"
    shown = (
        f"{label}: {arguments.get(key)}" if is_labelled else arguments.get(key)
        for key, label in _CHINESE.items()
        if arguments.get(key)
    )
    return ("; " if is_labelled else ", ").join(shown) or REMOVED


@shows("korean|lang-ko")
def korean(arguments: Arguments) -> str:
    """{{korean|hangul=서울|rr=Seoul}}: "Korean: 서울, Seoul"."""
    words = [arguments.get(key) for key in ("hangul", "hanja", "rr", "mr")] + arguments.positional
    return f"Korean: {', '.join(filter(None, words))}" if any(words) else REMOVED


@shows("etymology|etym", kind="english")
def etymology(arguments: Arguments) -> str:
    """{{etymology|grc|ἄνθρωπος|human|la|homo|man}}: "from Ancient Greek ἄνθρωπος 'human' and Latin homo 'man'"."""
    origins = []
    for at in range(0, len(arguments.positional), 3):
        code, words, meaning = arguments[at], arguments.get(at + 1), arguments.get(at + 2)
        quoted = f"'{meaning}'" if meaning else ""
        origins.append(" ".join(filter(None, [_NAMES.get(code, code), words, quoted])))
    return f"from {' and '.join(origins)}" if origins else REMOVED


def _number(arguments: Arguments) -> str:
    """{{Zahl|1234567}} "1.234.567"."""
    return grouped_in_style(arguments[0], arguments.site.numbers)


def _quantity(arguments: Arguments) -> str:
    """{{unité|1234.5|km}} "1 234,5 km", {{unité|5|m|2}} "5 m²", {{unité|3|m||s|-1}} "3 m s^-1"."""
    text = grouped_in_style(arguments[0], arguments.site.numbers)
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


_LOCAL_FAMILIES: dict[str, Renderer] = {
    "number": _number,
    "quantity": _quantity,
    "first": first,
    "second": second,
    "quoted": _quoted,
    "joined": joined(" "),
    "century": _century,
    "linked": _linked,
    "shown_or_title": second,
}
"""The families that `languages.toml` names."""


def find_local_renderer(arguments: Arguments) -> Renderer | None:
    """Returns the renderer of a template that `languages.toml` names for the page's language, if it does."""
    shown = arguments.site.shown.get(arguments.template)
    if shown is not None:
        return lambda _: shown
    family = arguments.site.templates.get(arguments.template)
    if family is not None:
        return _LOCAL_FAMILIES[family]
    head, colon, value = arguments.template.partition(":")
    if colon and (head == "formatnum" or arguments.site.templates.get(head) == "number"):
        return lambda _: grouped_in_style(value, arguments.site.numbers)
    return None


def adapt_renderer(name: str, renderer: Renderer) -> Renderer | None:
    """Returns the renderer of an English template for a page in another language; None if it shows English words.

    Foreign words come without the name of their language, quantities with the symbols of their units, and numbers as
    the language writes them.
    """
    kind = FAMILIES[name].kind if name in FAMILIES else "any"
    if kind == "english":
        return None
    if renderer in (language, chinese, korean):
        return _foreign_words
    if kind == "convert":
        return lambda arguments: _translated(renderer, arguments, {"abbr": "on"})
    if kind == "number":
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
    style = arguments.site.numbers
    return _ENGLISH_NUMBER.sub(lambda match: grouped_in_style(match[0].replace(",", ""), style), text)
