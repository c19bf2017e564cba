"""Templates of fractions, values, coordinates and amounts of money."""

import re

from data_prep.wikitext.markers import REMOVED, UNKNOWN_AMOUNT
from data_prep.wikitext.templates.arguments import Arguments
from data_prep.wikitext.templates.numbers import grouped, ordinal, roman, spelled
from data_prep.wikitext.templates.units import find_unit


def fraction(arguments: Arguments) -> str:
    """{{frac|2}} "1/2", {{frac|2|3}} "2/3", {{frac|1|2|3}} "1 2/3"."""
    parts = [part for part in arguments.positional[:3] if part]
    if len(parts) == 1:
        return f"1/{parts[0]}"
    if len(parts) == 2:
        return f"{_grouped_term(parts[0])}/{_grouped_term(parts[1])}"
    return f"{parts[0]} {parts[1]}/{parts[2]}"


def _grouped_term(term: str) -> str:
    return f"({term})" if re.search(r"\s[-+−–±]\s", term) else term


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


def power_of_ten(arguments: Arguments) -> str:
    """{{e|24}} "×10^24"."""
    return f"×10^{arguments[0]}"


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


def height(arguments: Arguments) -> str:
    """{{height|ft=6|in=2}} "6 ft 2 in"."""
    parts = [f"{arguments.get(key)} {key}" for key in ("m", "cm", "ft", "in") if arguments.get(key)]
    return " ".join(parts) or REMOVED


def price(arguments: Arguments) -> str:
    """{{format price|3160384}}: the amount with commas."""
    return grouped(arguments[0])


def computed_price(arguments: Arguments) -> str:
    """{{inflation|US|3160384|2003}}, {{to USD|5|GBP}}: an amount that needs the wiki's tables of prices."""
    return UNKNOWN_AMOUNT


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


def money(arguments: Arguments) -> str:
    """{{US$|2 billion}} "US$2 billion"."""
    return f"{_CURRENCIES[arguments.template]}{grouped(arguments.get(0))}"


def currency(arguments: Arguments) -> str:
    """{{currency|5|USD}}: "US$5"; a currency without a sign of its own is written out, "5 XYZ"."""
    code = (arguments.get(1) or arguments.get("type", "USD")).lower()
    sign, amount = _CURRENCIES.get(code), grouped(arguments.get("amount") or arguments[0])
    return f"{sign}{amount}" if sign else f"{amount} {code.upper()}"


def rupees(arguments: Arguments) -> str:
    """{{INRConvert|5|c}}: "₹5 crore"."""
    scale = {"l": "lakh", "c": "crore", "lc": "lakh crore", "k": "thousand", "m": "million", "b": "billion"}
    return f"₹{grouped(arguments[0])} {scale.get(arguments.get(1), '')}".strip()


def density(arguments: Arguments) -> str:
    """{{pop density|3645257|640081.87|km2}} "6 inhabitants per square kilometre": population divided by area."""
    population, area = (float(arguments[index].replace(",", "")) for index in (0, 1))
    unit = find_unit(arguments[2])
    digits = min(int(arguments.get("prec") or 0), 9)  # a page may ask for a million
    return f"{population / area:,.{digits}f} inhabitants per {unit.singular if unit else arguments[2]}"


def track_gauge(arguments: Arguments) -> str:
    """{{track gauge|1435mm}} "1,435 mm", {{track gauge|4ft8.5in}} "4 ft 8.5 in"."""
    spaced = re.sub(r"(?<=\d)(?=[a-z])", " ", arguments[0].removesuffix("al").removesuffix("lk"))
    spaced = re.sub(r"(?<=[a-z])(?=\d)", " ", spaced)
    return re.sub(r"\d{4,}", lambda match: grouped(match[0]), spaced)


def rounded(arguments: Arguments) -> str:
    """{{number|1234567}}, {{formatnum}}, {{gaps|1|234}}: digits in groups."""
    return grouped("".join(arguments.positional))


RENDERERS = {
    **dict.fromkeys(["frac", "fraction", "sfrac", "frac2", "tfrac", "sfrac2", "ratio", "dfrac", "cfrac"], fraction),
    **dict.fromkeys(["val", "value", "physconst", "nval"], value),
    **dict.fromkeys(["e", "esp", "x10", "x10^", "10^"], power_of_ten),
    **dict.fromkeys(["coord", "coordinates", "geocoord"], coordinates),
    **dict.fromkeys(["height", "ft in"], height),
    **dict.fromkeys(["format price", "formatprice"], price),
    **dict.fromkeys(["inflation", "inflation-old", "inflation-year", "inflation/year", "to usd"], computed_price),
    **dict.fromkeys(["currency", "currency amount"], currency),
    "inrconvert": rupees,
    "ordinal": lambda arguments: ordinal(arguments[0]),
    **dict.fromkeys(["roman", "roman numeral", "rn"], lambda arguments: roman(arguments[0])),
    **dict.fromkeys(
        ["spell number", "spellnum", "number to word", "spelled number"], lambda arguments: spelled(arguments[0])
    ),
    **dict.fromkeys(_CURRENCIES, money),
    **dict.fromkeys(["pop density", "population density", "popdens"], density),
    **dict.fromkeys(["railgauge", "track gauge", "rail gauge"], track_gauge),
    **dict.fromkeys(["number", "gaps", "formatnum", "num", "digits"], rounded),
}
