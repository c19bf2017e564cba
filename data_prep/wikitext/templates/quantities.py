"""Functions of templates of quantities, numbers, money, coordinates, dates and ages.

Of {{convert}}, the quantity is shown as it was measured. The value that the template computes in another unit is left
out; the sentence is complete without it.
"""

import itertools
import re
from datetime import date
from typing import NamedTuple

from data_prep.wikitext.markers import REMOVED
from data_prep.wikitext.site import NumberStyle, grouped, read_table
from data_prep.wikitext.templates.arguments import Arguments, names, renders

_TABLE = read_table("templates.toml")
_NUMBER = re.compile(r"[-+−–]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+−–]?(?:\d+[+ ])?\d+//?\d+", re.IGNORECASE)
_MIXED = re.compile(r"([-+−–]?)(?:(\d+)[+ ])?(\d+)//?(\d+)")
_POWER = re.compile(r"(.*\d)e([-+]?\d+)", re.IGNORECASE)
_ONES, _TENS, _MONTHS = (names(_TABLE["words"][key]) for key in ("ones", "tens", "months"))
# Words between two numbers of one quantity, and how they are shown.
_BETWEEN = {word: shown for shown, words in _TABLE["between_numbers"].items() for word in names(words)}
_LARGE_UNIT = re.compile(
    r"(e3|e6|e9|e12)(\D.*)|([kMGT])((?:oilbbl|cuft|USgal|impgal|bbl|PD/|/).*)"
)  # "e6carat": million carats
_LARGE = {"e3": "thousand", "e6": "million", "e9": "billion", "e12": "trillion"}
_LARGE |= {"k": "thousand", "M": "million", "G": "billion", "T": "trillion"}
_SIGNS_OF_MONEY = {code: sign for sign, codes in _TABLE["money"].items() for code in names(codes)}
_DIRECTIONS = tuple("NSEW")
_COORDINATE = re.compile(r"[-−]?\d+(?:\.\d+)?|[NSEW]")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TODAY = {"year": "%Y", "monthname": "%B", "month": "%B", "day": "%d", "day2": "%d", "dayname": "%A"}
_TODAY |= {"date": "%d %B %Y"}


def written(number: str, style: NumberStyle) -> str:
    """Writes a number of {{convert}}, with fractions ("1+1/2" -> "1 1/2") and powers of ten ("2e6" -> "2×10^6")."""
    if match := _MIXED.fullmatch(number):
        sign, whole, numerator, denominator = match.groups()
        return f"{sign}{whole + ' ' if whole else ''}{numerator}/{denominator}"
    if match := _POWER.fullmatch(number):
        return f"{grouped(match[1], style)}×10^{int(match[2])}"
    return grouped(number, style)


def spelled(number: str) -> str:
    """ "42" -> "forty-two", below a hundred; larger numbers stay digits."""
    if not number.isdecimal() or int(number) > 99:
        return grouped(number)
    tens, ones = divmod(int(number), 10)
    if tens < 2:
        return _ONES[int(number)]
    return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")


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


@renders
def convert(arguments: Arguments) -> str:
    """Returns a quantity in words; on pages in other languages than English, with the symbol of its unit.

        {{convert|1300|mi|km}}               1,300 miles
        {{convert|6|to|8|ft|m|abbr=on}}      6 to 8 ft
        {{convert|5|ft|6|in|cm}}             5 feet 6 inches
        {{convert|3|mi|km|adj=on}}           3-mile
        {{convert|3|mi|km|adj=mid|-long}}    3-mile-long
        {{convert|3|mi|adj=pre|straight}}    3 straight miles

    ValueError: the first argument is not a number.
    """
    parts = arguments.positional
    if not parts or not _NUMBER.fullmatch(parts[0]):
        raise ValueError(f"no number in {{{{convert|{'|'.join(parts)}}}}}")
    number, units = _joined_numbers(arguments)
    if not units:
        return number
    adjective, abbreviation = (
        arguments.get("adj"),
        arguments.get("abbr", "on" if arguments.template == "cvt" else "off"),
    )
    is_adjective = adjective in ("on", "mid", "1")
    is_short = abbreviation not in ("off", "none", "out", "no") or not arguments.site.is_english
    is_single = number in ("1", "-1", "one", "One")
    if is_adjective and not is_short:
        number = re.sub(r" (by|to|and|or) ", r"-\1-", number)
    if adjective == "pre" and len(units) > 1 and units[-1]:
        number += f" {units[-1]}"
    quantities = [_quantity(number, units[0], is_single, is_adjective, is_short)]
    # A second number with a unit of its own belongs to the first: feet and inches, pounds and ounces.
    rest = units[1:]
    while len(rest) > 1 and _NUMBER.fullmatch(rest[0]) and find_unit(rest[1]):
        more = written(rest[0], arguments.site.numbers)
        quantities.append(_quantity(more, rest[1], rest[0] == "1", is_adjective, is_short))
        rest = rest[2:]
    text = ("-" if is_adjective else " ").join(quantities)
    if adjective == "mid" and rest:
        text += f"-{rest[-1].strip(' -')}"
    if arguments.get("sp") == "us":
        text = text.replace("metre", "meter").replace("litre", "liter")
    return text


def _joined_numbers(arguments: Arguments) -> tuple[str, list[str]]:
    """The numbers at the beginning with the words between them ("6 to 8"), and the arguments behind them."""
    parts, style = arguments.positional, arguments.site.numbers
    number = written(parts[0], style)
    if spelling := arguments.get("spell"):
        number = spelled(number).capitalize() if spelling[0].isupper() else spelled(number)
    rest = parts[1:]
    while len(rest) > 1 and rest[0].lower() in _BETWEEN and _NUMBER.fullmatch(rest[1]):
        number += _BETWEEN[rest[0].lower()] + written(rest[1], style)
        rest = rest[2:]
    return number, rest


def _quantity(number: str, code: str, is_single: bool, is_adjective: bool, is_short: bool) -> str:
    """Returns a number with its unit: in words, or as a symbol if the template asks for it, and for degrees."""
    if large := _LARGE_UNIT.fullmatch(code):
        number, code, is_single = f"{number} {_LARGE[large[1] or large[3]]}", large[2] or large[4], False
    unit = find_unit(code)
    if unit is None:
        return f"{number} {code}"
    if is_short or unit.symbol[0] == "°":
        return f"{number}{unit.symbol}" if unit.symbol[0] == "/" else f"{number} {unit.symbol}"
    if is_adjective:
        return f"{number}-{unit.singular.replace(' ', '-')}"
    return f"{number} {unit.singular if is_single else unit.plural}"


@renders
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


@renders
def value(arguments: Arguments) -> str:
    """{{val|6.241|e=18|u=C}} "6.241×10^18 C"; {{val|1.5|0.1|u=m}} "1.5±0.1 m"."""
    text, *others = [arguments.number(part) for part in arguments.positional if part]
    if others:
        text += others[0] if others[0].startswith("(") else f"±{others[0].lstrip('+')}"
    for key, before in (("e", "×10^"), ("u", " "), ("ul", " "), ("up", "/"), ("upl", "/")):
        if shown := arguments.get(key):
            text += f"{before}{shown}"
    return f"{arguments.get('p')}{text}{arguments.get('s')}"


@renders
def coordinates(arguments: Arguments) -> str:
    """{{coord|13|19|N|169|9|W}} "13°19′N 169°9′W" in the text; REMOVED if it is shown beside the title."""
    if arguments.get("display", "inline").strip() in ("title", "t"):
        return REMOVED
    parts = list(itertools.takewhile(_COORDINATE.fullmatch, arguments.positional))
    if not any(part in _DIRECTIONS for part in parts):
        return Arguments("", parts).show("{1}°, {2}°")
    text, marks = "", iter("°′″")
    for part in parts:
        text += f"{part} " if part in _DIRECTIONS else f"{part}{next(marks, ' ')}"
        marks = iter("°′″") if part in _DIRECTIONS else marks
    return text.strip()


@renders
def currency(arguments: Arguments) -> str:
    """{{currency|5|USD}}: "US$5"; a currency without a sign of its own is written out, "5 XYZ"."""
    code = (arguments.get(1) or arguments.get("type", "USD")).lower()
    sign, amount = _SIGNS_OF_MONEY.get(code), arguments.number(arguments.get("amount") or arguments[0])
    return f"{sign}{amount}" if sign else f"{amount} {code.upper()}"


@renders
def density(arguments: Arguments) -> str:
    """{{pop density|3645257|640081.87|km2}} "6 inhabitants per square kilometre": population divided by area."""
    population, area = (float(arguments[index].replace(",", "")) for index in (0, 1))
    unit = find_unit(arguments[2])
    digits = min(int(arguments.get("prec") or 0), 9)  # a page may ask for a million
    return f"{population / area:,.{digits}f} inhabitants per {unit.singular if unit else arguments[2]}"


@renders
def track_gauge(arguments: Arguments) -> str:
    """{{track gauge|1435mm}} "1,435 mm", {{track gauge|4ft8.5in}} "4 ft 8.5 in"."""
    spaced = re.sub(r"(?<=\d)(?=[a-z])", " ", arguments[0].removesuffix("al").removesuffix("lk"))
    spaced = re.sub(r"(?<=[a-z])(?=\d)", " ", spaced)
    return re.sub(r"\d{4,}", lambda match: arguments.number(match[0]), spaced)


@renders
def percentage(arguments: Arguments) -> str:
    """{{percentage|1|3|1}} "33.3%": the share of the first number in the second, with so many decimals."""
    part, whole = (float(arguments[index].replace(",", "")) for index in (0, 1))
    return f"{100 * part / whole:.{min(int(arguments.get(2, '0')), 9)}f}%"


@renders
def ordinal(arguments: Arguments) -> str:
    """{{ordinal|1}} "1st", {{ordinal|1203}} "1,203rd"."""
    last_two = int(arguments[0]) % 100
    suffix = "th" if 10 < last_two < 14 else {1: "st", 2: "nd", 3: "rd"}.get(last_two % 10, "th")
    return f"{grouped(arguments[0])}{suffix}"


@renders
def season(arguments: Arguments) -> str:
    """{{nhly|2010}} "2010–11", {{nhly|1999}} "1999–2000": a season that begins in a year and ends in the next."""
    end = int(arguments[0]) + 1
    return f"{arguments[0]}–{end if end % 100 == 0 else f'{end % 100:02}'}"


@renders
def number_in_words(arguments: Arguments) -> str:
    """{{spell number|42}} "forty-two"."""
    return spelled(arguments[0])


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


@renders
def date_in_words(arguments: Arguments) -> str:
    """{{start date|1990|1|2|df=y}}, {{birth date and age|...}}, {{date|1990-01-02|mdy}}, ...: the date in words."""
    if iso := _ISO.fullmatch(arguments[0]):
        return format_date(iso[1], iso[2], iso[3], arguments.get(1).lower() != "mdy")
    return format_date(arguments[0], arguments.get(1), arguments.get(2), bool(arguments.get("df")))


@renders
def as_of(arguments: Arguments) -> str:
    """{{as of|2014|6|lc=y}} "as of June 2014"; {{as of|2014|alt=in 2014|post=,}} "in 2014,"."""
    if words := arguments.get("alt"):
        return f"{words}{arguments.get('post')}"
    shown = format_date(arguments[0], arguments.get(1), arguments.get(2), arguments.get("df").lower() != "us")
    if arguments.get("bare"):
        return shown
    lead = "since" if arguments.get("since") else "as of"
    return f"{lead if arguments.get('lc') else lead.capitalize()} {shown}{arguments.get('post')}"


def _day_saved(arguments: Arguments) -> date:
    if arguments.written is None:
        raise ValueError("nothing says when the page was saved")
    return arguments.written


@renders
def age(arguments: Arguments) -> str:
    """{{age|1946|4|29|1990|1|2}} "43": whole years between two dates, the second by default when the page was saved."""
    numbers = [int(part) for part in (arguments[0], *arguments.positional[1:6]) if part]
    begin, end = (
        date(*(*numbers[at : at + 3], 1, 1)[:3]) if at < len(numbers) else _day_saved(arguments) for at in (0, 3)
    )
    return str(end.year - begin.year - ((end.month, end.day) < (begin.month, begin.day)))


@renders
def today(arguments: Arguments) -> str:
    """{{CURRENTYEAR}} and similar templates: the date on which the page was saved."""
    pattern = _TODAY[re.sub("current|local|this", "", arguments.template)]
    return _day_saved(arguments).strftime(pattern).lstrip("0")
