"""Templates of quantities, fractions, values, coordinates and amounts of money.

Of {{convert}}, the quantity is shown as it was measured. The value that the template computes in another unit is left
out; the sentence is complete without it.
"""

import re
from typing import NamedTuple

from data_prep.wikitext.markers import REMOVED, UNKNOWN_AMOUNT
from data_prep.wikitext.templates.arguments import Arguments, shows
from data_prep.wikitext.templates.numbers import find_unit, grouped, is_number, ordinal, roman, spelled, written

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
_CURRENCIES = {
    **dict.fromkeys(["us$", "usd", "us dollar"], "US$"),
    **dict.fromkeys(["a$", "aud", "au$"], "A$"),
    **dict.fromkeys(["c$", "cad", "ca$"], "C$"),
    **dict.fromkeys(["nz$", "nzd"], "NZ$"),
    **dict.fromkeys(["gbp", "£", "pound sterling", "pound"], "£"),
    **dict.fromkeys(["euro", "€", "eur"], "€"),
    **dict.fromkeys(["inr", "indian rupee", "₹"], "₹"),
    **dict.fromkeys(["¥", "jpy", "yen"], "¥"),
    **dict.fromkeys(["krw", "₩"], "₩"),
    **dict.fromkeys(["php", "philippine peso"], "₱"),
    **{
        code: f"{code.upper()} "
        for code in ("sek", "nok", "dkk", "pln", "czk", "huf", "aed", "sar", "pkr", "thb", "myr")
    },
    "hk$": "HK$",
    "cny": "CN¥",
    "rmb": "RMB ",
    "rub": "₽",
    "brl": "R$",
    "chf": "CHF ",
    "ils": "₪",
    "zar": "R",
}
_LARGE_IN_INDIA = {"l": "lakh", "c": "crore", "lc": "lakh crore", "k": "thousand", "m": "million", "b": "billion"}


class _Style(NamedTuple):
    """How to write a quantity. is_adjective: "5-mile". is_short: "5 mi". is_american: "meter"."""

    is_adjective: bool
    is_short: bool
    is_american: bool


@shows("convert|cvt|conv|convert2|unit convert", kind="convert")
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


@shows("mi to km|km to mi|ft to m|m to ft|km2 to mi2|mi2 to km2|in to cm|lb to kg", kind="convert")
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


@shows("frac|fraction|sfrac|frac2|tfrac|sfrac2|ratio|dfrac|cfrac", kind="number")
def fraction(arguments: Arguments) -> str:
    """{{frac|2}} "1/2", {{frac|2|3}} "2/3", {{frac|1|2|3}} "1 2/3"."""
    parts = [part for part in arguments.positional[:3] if part]
    if len(parts) == 1:
        return f"1/{parts[0]}"
    if len(parts) == 2:
        return f"{_in_parentheses(parts[0])}/{_in_parentheses(parts[1])}"
    return f"{parts[0]} {parts[1]}/{parts[2]}"


def _in_parentheses(term: str) -> str:
    """Puts a sum or difference in parentheses; another term is unchanged."""
    return f"({term})" if re.search(r"\s[-+−–±]\s", term) else term


@shows("val|value|physconst|nval", kind="number")
def value(arguments: Arguments) -> str:
    """{{val|6.241|e=18|u=C}} "6.241×10^18 C"; {{val|1.5|0.1|u=m}} "1.5±0.1 m"."""
    numbers = [grouped(part) for part in arguments.positional if part]
    if not numbers:
        raise IndexError("no number")
    text = numbers[0]
    if len(numbers) > 1:
        text += numbers[1] if numbers[1].startswith("(") else f"±{numbers[1].lstrip('+')}"
    if power := arguments.get("e"):
        text += f"×10^{power}"
    unit = arguments.get("u") or arguments.get("ul")
    per = arguments.get("up") or arguments.get("upl")
    text += f" {unit}" if unit else ""
    prefix, suffix = arguments.get("p"), arguments.get("s")
    return f"{prefix}{text}{'/' + per if per else ''}{suffix}"


@shows("e|esp|x10|x10^|10^", kind="number")
def power_of_ten(arguments: Arguments) -> str:
    """{{e|24}} "×10^24"."""
    return f"×10^{arguments[0]}"


@shows("coord|coordinates|geocoord", kind="number")
def coordinates(arguments: Arguments) -> str:
    """{{coord|13|19|N|169|9|W}} "13°19′N 169°9′W" in the text; REMOVED if it is shown beside the title."""
    if arguments.get("display", "inline").strip() in ("title", "t"):
        return REMOVED
    parts = []
    for part in arguments.positional:
        if not re.fullmatch(r"[-−]?\d+(?:\.\d+)?|[NSEW]", part):
            break
        parts.append(part)
    text, marks = "", iter("°′″")
    for part in parts:
        if part in "NSEW":
            text += f"{part} "
            marks = iter("°′″")
        else:
            text += f"{part}{next(marks, ' ')}"
    if not any(direction in text for direction in "NSEW") and len(parts) >= 2:
        text = f"{parts[0]}°, {parts[1]}°"
    return text.strip() or REMOVED


@shows("height|ft in", kind="number")
def height(arguments: Arguments) -> str:
    """{{height|ft=6|in=2}} "6 ft 2 in"."""
    parts = [f"{arguments.get(key)} {key}" for key in ("m", "cm", "ft", "in") if arguments.get(key)]
    return " ".join(parts) or REMOVED


@shows("format price|formatprice", kind="number")
def price(arguments: Arguments) -> str:
    """{{format price|3160384}}: the amount with commas."""
    return grouped(arguments[0])


@shows("inflation|inflation-old|inflation-year|inflation/year|to usd", kind="number")
def computed_price(arguments: Arguments) -> str:
    """{{inflation|US|3160384|2003}}, {{to USD|5|GBP}}: an amount that needs the wiki's tables of prices."""
    return UNKNOWN_AMOUNT


@shows("|".join(_CURRENCIES), kind="number")
def money(arguments: Arguments) -> str:
    """{{US$|2 billion}} "US$2 billion"."""
    return f"{_CURRENCIES[arguments.template]}{grouped(arguments.get(0))}"


@shows("currency|currency amount", kind="number")
def currency(arguments: Arguments) -> str:
    """{{currency|5|USD}}: "US$5"; a currency without a sign of its own is written out, "5 XYZ"."""
    code = (arguments.get(1) or arguments.get("type", "USD")).lower()
    sign, amount = _CURRENCIES.get(code), grouped(arguments.get("amount") or arguments[0])
    return f"{sign}{amount}" if sign else f"{amount} {code.upper()}"


@shows("inrconvert", kind="english")
def rupees(arguments: Arguments) -> str:
    """{{INRConvert|5|c}}: "₹5 crore"."""
    return f"₹{grouped(arguments[0])} {_LARGE_IN_INDIA.get(arguments.get(1), '')}".strip()


@shows("pop density|population density|popdens", kind="english")
def density(arguments: Arguments) -> str:
    """{{pop density|3645257|640081.87|km2}} "6 inhabitants per square kilometre": population divided by area."""
    population, area = (float(arguments[index].replace(",", "")) for index in (0, 1))
    unit = find_unit(arguments[2])
    digits = min(int(arguments.get("prec") or 0), 9)  # a page may ask for a million
    return f"{population / area:,.{digits}f} inhabitants per {unit.singular if unit else arguments[2]}"


@shows("railgauge|track gauge|rail gauge", kind="number")
def track_gauge(arguments: Arguments) -> str:
    """{{track gauge|1435mm}} "1,435 mm", {{track gauge|4ft8.5in}} "4 ft 8.5 in"."""
    spaced = re.sub(r"(?<=\d)(?=[a-z])", " ", arguments[0].removesuffix("al").removesuffix("lk"))
    spaced = re.sub(r"(?<=[a-z])(?=\d)", " ", spaced)
    return re.sub(r"\d{4,}", lambda match: grouped(match[0]), spaced)


@shows("number|gaps|formatnum|num|digits", kind="number")
def rounded(arguments: Arguments) -> str:
    """{{number|1234567}}, {{formatnum}}, {{gaps|1|234}}: digits in groups."""
    return grouped("".join(arguments.positional))


shows("ordinal", kind="english")(lambda arguments: ordinal(arguments[0]))
shows("spell number|spellnum|number to word|spelled number", kind="english")(lambda arguments: spelled(arguments[0]))
shows("roman|roman numeral|rn", kind="number")(lambda arguments: roman(arguments[0]))
