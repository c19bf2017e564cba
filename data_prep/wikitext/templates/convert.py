"""{{convert}}: a quantity as it was measured, in words that fit into a sentence.

The value that the template computes in another unit is left out; the sentence is complete without it.
"""

import re
from dataclasses import dataclass

from data_prep.wikitext.templates.arguments import Arguments
from data_prep.wikitext.templates.numbers import is_number, spelled, written
from data_prep.wikitext.templates.units import find_unit

# Words between two numbers of one quantity, and how they are shown.
_BETWEEN = {
    **dict.fromkeys(["-", "–", "to(-)"], "–"),
    **dict.fromkeys(["to", "to-", "to+"], " to "),
    **dict.fromkeys(["and", "and-", "and(-)", "&"], " and "),
    **dict.fromkeys(["or", "or-"], " or "),
    **dict.fromkeys(["x", "×", "*", "xx", "x(-)"], " × "),
    **dict.fromkeys(["+/-", "±"], " ± "),
    "by": " by ",
    "+": " + ",
    ",": ", ",
    "/": "/",
    "to about": " to about ",
}
_LARGE_UNIT = re.compile(
    r"(e3|e6|e9|e12)(\D.*)|([kMGT])((?:oilbbl|cuft|USgal|impgal|bbl|PD/|/).*)"
)  # "e6carat": million carats
_LARGE = {"e3": "thousand", "e6": "million", "e9": "billion", "e12": "trillion"}
_LARGE |= {"k": "thousand", "M": "million", "G": "billion", "T": "trillion"}


@dataclass(frozen=True)
class _Style:
    """How to write a quantity. is_adjective: "5-mile". is_short: "5 mi". is_american: "meter"."""

    is_adjective: bool
    is_short: bool
    is_american: bool


def convert(arguments: Arguments) -> str:
    """Returns a quantity in words.

        {{convert|1300|mi|km}}               1,300 miles
        {{convert|6|to|8|ft|m|abbr=on}}      6 to 8 ft
        {{convert|5|ft|6|in|cm}}             5 feet 6 inches
        {{convert|3|mi|km|adj=on}}           3-mile
        {{convert|3|mi|km|adj=mid|-long}}    3-mile-long
        {{convert|3|mi|adj=pre|straight}}    3 straight miles

    ValueError: the first argument is not a number.
    """
    parts = arguments.positional
    if not parts or not is_number(parts[0]):
        raise ValueError(f"no number in {{{{convert|{'|'.join(parts)}}}}}")
    number, is_single = written(parts[0]), parts[0] in ("1", "-1")
    if spelling := arguments.get("spell"):
        number = spelled(number).capitalize() if spelling[0].isupper() else spelled(number)
    at = 1
    while at + 1 < len(parts) and parts[at].lower() in _BETWEEN and is_number(parts[at + 1]):
        number += _BETWEEN[parts[at].lower()] + written(parts[at + 1])
        is_single = False
        at += 2
    if at >= len(parts):
        return number
    short = "on" if arguments.template == "cvt" else "off"
    style = _Style(
        is_adjective=arguments.get("adj") in ("on", "mid", "1"),
        is_short=arguments.get("abbr", short) not in ("off", "none", "out", "no"),
        is_american=arguments.get("sp") == "us",
    )
    if style.is_adjective and not style.is_short:
        number = re.sub(r" (by|to|and|or) ", r"-\1-", number)
    if arguments.get("adj") == "pre" and len(parts) > at + 1 and parts[-1]:
        number += f" {parts[-1]}"
    text = _quantity(number, parts[at], is_single, style)
    at += 1
    # A second number with a unit of its own belongs to the first: feet and inches, pounds and ounces.
    while at + 1 < len(parts) and is_number(parts[at]) and find_unit(parts[at + 1]):
        text += "-" if style.is_adjective else " "
        text += _quantity(written(parts[at]), parts[at + 1], parts[at] == "1", style)
        at += 2
    if arguments.get("adj") == "mid" and len(parts) > at:
        text += f"-{parts[-1].strip(' -')}"
    return text


def convert_by_name(arguments: Arguments) -> str:
    """{{mi to km|10}} and similar templates: "10 miles"."""
    unit = arguments.template.partition(" ")[0]
    return convert(Arguments("convert", [arguments[0], unit], arguments.named))


def _quantity(number: str, code: str, is_single: bool, style: _Style) -> str:
    """Returns a number with its unit: in words, or as a symbol if the template asks for it, and for degrees."""
    if large := _LARGE_UNIT.fullmatch(code):
        number, code, is_single = f"{number} {_LARGE[large[1] or large[3]]}", large[2] or large[4], False
    unit = find_unit(code)
    if unit is None:
        return f"{number} {code}"
    if style.is_short or unit.symbol[0] == "°":
        return f"{number}{unit.symbol}" if unit.symbol[0] == "/" else f"{number} {unit.symbol}"
    if style.is_adjective:
        words = f"{number}-{unit.singular.replace(' ', '-')}"
    else:
        words = f"{number} {unit.singular if is_single else unit.plural}"
    return words.replace("metre", "meter").replace("litre", "liter") if style.is_american else words


RENDERERS = {
    **dict.fromkeys(["convert", "cvt", "conv", "convert2", "unit convert"], convert),
    **dict.fromkeys(
        ["mi to km", "km to mi", "ft to m", "m to ft", "km2 to mi2", "mi2 to km2", "in to cm", "lb to kg"],
        convert_by_name,
    ),
}
