"""Functions of templates: quantities, dates, chemistry, foreign words and pronunciation.

`templates.toml` and `languages.toml` name them, as "name()". Such a function returns what a reader sees of a template.
LookupError, ValueError, ArithmeticError: the arguments are wrong.

Of {{convert}}, the quantity is shown as it was measured. The value that the template computes in another unit is left
out; the sentence is complete without it.
"""

import itertools
import re
from typing import NamedTuple

from data_prep.wikitext.markers import PRONUNCIATION, PRONUNCIATION_END, REMOVED, UNKNOWN_AMOUNT
from data_prep.wikitext.site import read_table
from data_prep.wikitext.tags import script
from data_prep.wikitext.templates.arguments import Arguments, names

_TABLE = read_table("templates.toml")
_NUMBER = re.compile(r"[-+−–]?(?:\d[\d,]*\.?\d*|\.\d+)|[-+−–]?(?:\d+[+ ])?\d+//?\d+")
# Words between two numbers of one quantity, and how they are shown.
_BETWEEN = {word: shown for shown, words in _TABLE["between_numbers"].items() for word in names(words)}
# "e6acre": million acres
_LARGE_UNIT = re.compile(r"(e3|e6|e9|e12|[kMGT](?=oilbbl|cuft|USgal|impgal|bbl|PD/|/))(\D.*)")
_LARGE = {"e3": "thousand", "e6": "million", "e9": "billion", "e12": "trillion"}
_LARGE |= {"k": "thousand", "M": "million", "G": "billion", "T": "trillion"}
_MONTHS = names(_TABLE["words"]["months"])
_COORDINATE = re.compile(r"[-−]?\d+(?:\.\d+)?|[NSEW]")
_MUSIC = {name: sign for sign, listed in _TABLE["music"].items() for name in names(listed)}
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_LISTEN = ("", "listen", "play", "pronunciation", "pronounce", "help")
_LANGUAGES = dict(entry.split(maxsplit=1) for entry in _TABLE["languages"]["names"].split(","))
# Settings among the arguments of {{IPA-xx}} and {{IPAc-xx}}; the others are sounds.
_NOT_SOUNDS = frozenset(names("lang|local|pron|also|audio|help|icon|small|us|uk|en|or|label|all"))


class UnitName(NamedTuple):
    """The names of a unit: singular ("mile", "foot"), plural ("miles", "feet") and symbol ("mi", "ft")."""

    singular: str
    plural: str
    symbol: str


def _read_units(table: str) -> dict[str, UnitName]:
    units: dict[str, UnitName] = {}
    for codes, unit_names in _TABLE[table].items():
        singular, plural, symbol = (cell.strip() for cell in unit_names.split("|"))
        units |= dict.fromkeys(codes.split(","), UnitName(singular, plural or f"{singular}s", symbol))
    return units


_UNITS, _CASE_SENSITIVE_UNITS = _read_units("units"), _read_units("case_sensitive_units")


def find_unit(code: str) -> UnitName | None:
    """Returns the unit of a code of {{convert}} ("sqmi", "km2", "kW", "pd/sqmi", ...), or None."""
    return _CASE_SENSITIVE_UNITS.get(code) or _UNITS.get(code.replace("²", "2").replace("³", "3").lower())


def convert(arguments: Arguments) -> str:
    """Returns a quantity in words; on pages in other languages than English, with the symbol of its unit.

        {{convert|1300|mi|km}}               1,300 miles
        {{convert|6|to|8|ft|m|abbr=on}}      6 to 8 ft
        {{convert|5|ft|6|in|cm}}             5 feet 6 inches
        {{convert|3|mi|km|adj=on}}           3-mile

    ValueError: the first argument is not a number.
    """
    if not arguments.positional or not _NUMBER.fullmatch(arguments.positional[0]):
        raise ValueError(f"no number in {{{{convert|{'|'.join(arguments.positional)}}}}}")
    abbreviation = arguments.get("abbr", "on" if arguments.template == "cvt" else "off")
    is_short = abbreviation not in ("off", "none", "out", "no") or not arguments.site.is_english
    is_adjective = arguments.get("adj") in ("on", "mid", "1") and not is_short
    number, rest = _join_numbers(arguments, arguments.positional)
    quantities = [_quantity(number, rest[0], is_short, is_adjective) if rest else number]
    rest = rest[1:]
    # A second number with a unit of its own belongs to the first: feet and inches, pounds and ounces.
    while len(rest) > 1 and _NUMBER.fullmatch(rest[0]) and find_unit(rest[1]):
        number, rest = _join_numbers(arguments, rest)
        quantities.append(_quantity(number, rest[0], is_short, is_adjective))
        rest = rest[1:]
    text = ("-" if is_adjective else " ").join(quantities)
    if arguments.get("adj") == "mid" and rest and not find_unit(rest[-1]):  # "3-mile-long", "3-mile long"
        text += rest[-1] if rest[-1].startswith("-") else f" {rest[-1]}"
    return text


def _join_numbers(arguments: Arguments, parts: list[str]) -> tuple[str, list[str]]:
    """The numbers at the beginning with the words between them ("6 to 8"), and the parts behind them."""
    joined, rest = arguments.number(parts[0]), parts[1:]
    while len(rest) > 1 and rest[0].lower() in _BETWEEN and _NUMBER.fullmatch(rest[1]):
        joined += _BETWEEN[rest[0].lower()] + arguments.number(rest[1])
        rest = rest[2:]
    return joined.replace("+", " ").replace("//", "/"), rest


def _quantity(number: str, code: str, is_short: bool, is_adjective: bool) -> str:
    """Returns a number with its unit: in words, or as a symbol if the template asks for it, and for degrees."""
    is_single = number in ("1", "-1")
    if large := _LARGE_UNIT.fullmatch(code):
        number, code = f"{number} {_LARGE[large[1]]}", large[2]
    unit = find_unit(code)
    if unit is None:
        return f"{number} {code}"
    if is_short or unit.symbol[0] == "°":
        return f"{number}{unit.symbol}" if unit.symbol[0] == "/" else f"{number} {unit.symbol}"
    if is_adjective:
        return f"{number}-{unit.singular}".replace(" ", "-")
    return f"{number} {unit.singular if is_single and not large else unit.plural}"


def quantity(arguments: Arguments) -> str:
    """{{unité|1234.5|km}} "1 234,5 km", {{unité|5|m|2}} "5 m²", {{unité|3|m||s|-1}} "3 m s^-1"."""
    text = arguments.number(arguments[0])
    units = arguments.positional[1:]
    for at in range(0, len(units), 2):
        unit, exponent = units[at], units[at + 1] if at + 1 < len(units) else ""
        if exponent:
            exponent = {"2": "²", "3": "³"}.get(exponent) or f"^{exponent}"
        if unit:
            text += f"{'' if unit[0] in '/%' and at else ' '}{unit}{exponent}"
    return text


def value(arguments: Arguments) -> str:
    """{{val|6.241|e=18|u=C}} "6.241×10^18 C"; {{val|1.5|0.1|u=m}} "1.5±0.1 m"."""
    text, *others = [arguments.number(part) for part in arguments.positional if part]
    if others:
        text += others[0] if others[0].startswith("(") else f"±{others[0].lstrip('+')}"
    for key, before in (("e", "×10^"), ("u", " "), ("ul", " "), ("up", "/"), ("upl", "/")):
        if shown := arguments.get(key):
            text += f"{before}{shown}"
    return f"{arguments.get('p')}{text}{arguments.get('s')}"


def coordinates(arguments: Arguments) -> str:
    """{{coord|13|19|N|169|9|W}} "13°19′N 169°9′W" in the text; REMOVED if it is shown beside the title."""
    if arguments.get("display", "inline").strip() in ("title", "t"):
        return REMOVED
    parts = list(itertools.takewhile(_COORDINATE.fullmatch, arguments.positional))
    if len(parts) == 2:
        return f"{parts[0]}°, {parts[1]}°"
    text, place = "", 0
    for part in parts:
        text += f"{part} " if part in "NSEW" else f"{part}{'°′″'[place]}"
        place = 0 if part in "NSEW" else place + 1
    return text.strip()


def music(arguments: Arguments) -> str:
    """{{music|flat}} "♭", {{music|time|3|4}} "3/4"; UNKNOWN_AMOUNT for the signs of notes and the like."""
    if arguments[0] == "time":
        return f"{arguments[1]}/{arguments[2]}"
    return _MUSIC.get(arguments[0].lower(), UNKNOWN_AMOUNT)


def format_date(year: str, month: str, day: str, day_first: bool) -> str:
    """Writes a date in words. Month and day may be numbers, words, or empty."""
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = _MONTHS[int(month) - 1]
    if day.isdecimal():
        day = str(int(day))
    if not month:
        return year
    if not day:
        return f"{month} {year}".strip()
    return f"{day} {month} {year}".strip() if day_first else f"{month} {day}, {year}".strip(" ,")


def date_in_words(arguments: Arguments) -> str:
    """{{start date|1990|1|2|df=y}}, {{birth date and age|...}}, {{date|1990-01-02|mdy}}, ...: the date in words."""
    if iso := _ISO.fullmatch(arguments[0]):
        return format_date(iso[1], iso[2], iso[3], arguments.get(1).lower() != "mdy")
    return format_date(arguments[0], arguments.get(1), arguments.get(2), bool(arguments.get("df")))


def as_of(arguments: Arguments) -> str:
    """{{as of|2014|6|lc=y}} "as of June 2014"; {{as of|2014|alt=in 2014|post=,}} "in 2014,"."""
    if words := arguments.get("alt"):
        return f"{words}{arguments.get('post')}"
    shown = format_date(arguments[0], arguments.get(1), arguments.get(2), arguments.get("df").lower() != "us")
    if arguments.get("bare"):
        return shown
    lead = "since" if arguments.get("since") else "as of"
    return f"{lead if arguments.get('lc') else lead.capitalize()} {shown}{arguments.get('post')}"


def recording(arguments: Arguments) -> str:
    """{{audio|A.ogg|words}}: the words, unless they only ask to listen."""
    return REMOVED if arguments.get(1).lower() in _LISTEN else arguments.get(1)


def formula(arguments: Arguments) -> str:
    """{{chem2|SO4(2-)}} "SO4^2-"."""
    return re.sub(r"\((\d*[-+−])\)", r"^\1", "".join(arguments.positional))


def atoms(arguments: Arguments) -> str:
    """{{chem|C|2|H|6|O}} "C2H6O", {{chem|SO|4|2-}} "SO4^2-": symbols and counts joined, charges as superscripts."""
    text = ""
    for part in arguments.positional:
        is_charge = re.fullmatch(r"\d*[-+−–]", part)
        text += script("sup", part, text[-1:]) if is_charge else part.replace("_", "")
    return text


def interlanguage_link(arguments: Arguments) -> str:
    """{{ill|Title|de|Titel|lt=words}}, or the older {{ill|de|Titel|Title}}."""
    if shown := arguments.get("lt"):
        return shown
    is_old_order = re.fullmatch(r"[a-z]{2,3}", arguments[0])
    return (arguments.get(2) or arguments[1]) if is_old_order else arguments[0]


def misspelt(arguments: Arguments) -> str:
    """{{sic|teh}} shows the misspelt words; without words it is a remark to readers."""
    return " ".join(part for part in arguments.positional[:2] if part and part != "hide") or REMOVED


def language(arguments: Arguments) -> str:
    """{{lang-ru|Москва|Moskva|Moscow}} and {{langx|ru|...}}: "Russian: Москва, Moskva, lit. 'Moscow'".

    On pages in other languages: the words alone.
    """
    is_general = arguments.template == "langx"
    code = arguments[0] if is_general else arguments.template.removeprefix("lang-")
    text, transliteration, meaning = (*arguments.positional[is_general:], "", "", "")[:3]
    if not text or not arguments.site.is_english:
        return text or REMOVED
    if transliteration := arguments.get("tr") or arguments.get("translit") or arguments.get("r") or transliteration:
        text += f", {transliteration}"
    if meaning := arguments.get("lit") or arguments.get("translation") or meaning:
        text += f", lit. '{meaning}'"
    name = _LANGUAGES.get(code) or _LANGUAGES.get(code.partition("-")[0])
    return f"{name}: {text}" if name and arguments.get("label") != "none" else text


def pronunciation(arguments: Arguments) -> str:
    """{{IPA-fr|mo|lang}} "[mo]", {{IPAc-en|m|oʊ}} "/moʊ/", {{IPA|/mo/}} "/mo/"; `repair` decides whether they stay."""
    sounds = arguments.positional
    # Since 2023 {{IPA|fr|mo}} has taken the place of {{IPA-fr|mo}}.
    is_of_language = arguments.template.startswith("ipa-") or (len(sounds) > 1 and sounds[0] in _LANGUAGES)
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
