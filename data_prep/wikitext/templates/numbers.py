"""Numbers and units of measurement as a sentence shows them."""

import functools
import re
from typing import NamedTuple

from data_prep.wikitext.site import NumberStyle
from data_prep.wikitext.templates.arguments import english_words

_MIXED = re.compile(r"([-+−–]?)(?:(\d+)[+ ])?(\d+)//?(\d+)")
_POWER = re.compile(r"(.*\d)e([-+]?\d+)", re.IGNORECASE)
_PLAIN = re.compile(r"([-+−–]?)(\d+)((?:\.\d+)?)")
_LOCAL = re.compile(r"([-+−–]?)(\d+)((?:,\d+)?)")
_NUMBER = re.compile(r"[-+−–]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+−–]?(?:\d+[+ ])?\d+//?\d+", re.IGNORECASE)

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X")),
    *((9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)


def is_number(text: str) -> bool:
    """Tells whether {{convert}} reads `text` as a number: "1,300", "2.5", "1e6", "1/2", "1+1/2"."""
    return _NUMBER.fullmatch(text) is not None


def grouped(number: str) -> str:
    """Writes a number with thousands separators ("1234567.5" -> "1,234,567.5"); other text is unchanged."""
    match = _PLAIN.fullmatch(number.strip().replace(",", ""))
    if not match:
        return number.strip()
    sign, digits, decimals = match.groups()
    if len(digits) > 3 and digits[0] != "0":
        digits = f"{int(digits):,}"
    return f"{'-' if sign in ('−', '–') else sign}{digits}{decimals}"


def grouped_in_style(number: str, style: NumberStyle) -> str:
    """Writes a number as a language does: "1234567.5" is "1.234.567,5" in German.

    Other text, such as a number with thousands separators, is unchanged.
    """
    number = number.strip()
    match = _PLAIN.fullmatch(number) or (_LOCAL.fullmatch(number) if style.decimal == "," else None)
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


def written(number: str) -> str:
    """Writes a number of {{convert}}, with fractions ("1+1/2" -> "1 1/2") and powers of ten ("2e6" -> "2×10^6")."""
    if match := _MIXED.fullmatch(number):
        sign, whole, numerator, denominator = match.groups()
        return f"{sign}{whole + ' ' if whole else ''}{numerator}/{denominator}"
    if match := _POWER.fullmatch(number):
        return f"{grouped(match[1])}×10^{int(match[2])}"
    return grouped(number)


def ordinal(number: str) -> str:
    """ "1" -> "1st", "12" -> "12th", "1203" -> "1,203rd"; other text is unchanged."""
    if not number.isdecimal():
        return number
    last_two = int(number) % 100
    suffix = "th" if 10 < last_two < 14 else {1: "st", 2: "nd", 3: "rd"}.get(last_two % 10, "th")
    return f"{grouped(number)}{suffix}"


def roman(number: str) -> str:
    """ "12" -> "XII", from 1 to 3999; other text is unchanged."""
    if not number.isdecimal() or not 0 < int(number) < 4000:
        return number
    left, numeral = int(number), ""
    for value, letters in _ROMAN:
        numeral += letters * (left // value)
        left %= value
    return numeral


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


def find_unit(code: str) -> UnitName | None:
    """Returns the unit of a code of {{convert}} ("sqmi", "km2", "kW", "pd/sqmi", ...), or None."""
    return _units("case_sensitive_units").get(code) or _units("units").get(
        code.replace("²", "2").replace("³", "3").lower()
    )


@functools.cache
def _units(table: str) -> dict[str, UnitName]:
    units: dict[str, UnitName] = {}
    for codes, unit_names in english_words()[table].items():
        singular, plural, symbol = (cell.strip() for cell in unit_names.split("|"))
        units |= dict.fromkeys(codes.split(","), UnitName(singular, plural or f"{singular}s", symbol))
    return units
