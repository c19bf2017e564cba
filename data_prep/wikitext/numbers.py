"""Numbers as a sentence shows them."""

import re

_MIXED = re.compile(r"([-+−–]?)(?:(\d+)[+ ])?(\d+)//?(\d+)")
_POWER = re.compile(r"(.*\d)e([-+]?\d+)", re.IGNORECASE)
_PLAIN = re.compile(r"([-+−–]?)(\d+)((?:\.\d+)?)")
_NUMBER = re.compile(r"[-+−–]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+−–]?(?:\d+[+ ])?\d+//?\d+", re.IGNORECASE)


def is_number(text: str) -> bool:
    """Whether {{convert}} takes `text` for a number: "1,300", "2.5", "1e6", "1/2", "1+1/2"."""
    return _NUMBER.fullmatch(text) is not None


def grouped(number: str) -> str:
    """A number with commas between its thousands ("1234567.5" -> "1,234,567.5"); other text as it is."""
    match = _PLAIN.fullmatch(number.strip().replace(",", ""))
    if not match:
        return number.strip()
    sign, digits, decimals = match.groups()
    if len(digits) > 3 and digits[0] != "0":
        digits = f"{int(digits):,}"
    return f"{'-' if sign in ('−', '–') else sign}{digits}{decimals}"


def written(number: str) -> str:
    """A number of {{convert}}, with its fractions ("1+1/2" -> "1 1/2") and powers of ten ("2e6" -> "2×10^6")."""
    if match := _MIXED.fullmatch(number):
        sign, whole, numerator, denominator = match.groups()
        return f"{sign}{whole + ' ' if whole else ''}{numerator}/{denominator}"
    if match := _POWER.fullmatch(number):
        return f"{grouped(match[1])}×10^{int(match[2])}"
    return grouped(number)
