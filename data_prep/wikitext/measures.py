"""Templates of numbers and measurements: the quantity as it was written, in words that fit into a sentence.

What {{convert}} computes (the same length in another unit) is left out: it says nothing that the sentence needs.
"""

import re

from data_prep.wikitext.arguments import Arguments
from data_prep.wikitext.marks import HOLE
from data_prep.wikitext.units import find_unit

_NUMBER = re.compile(r"[-+−–]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?(?:[+ ]?\d+//?\d+)?|[-−]?\d+//?\d+", re.IGNORECASE)
# Words between two numbers of one quantity, as {{convert}} writes them -> as they are shown.
_BETWEEN = {
    **{
        "-": "–",
        "–": "–",
        "to": " to ",
        "to-": " to ",
        "and": " and ",
        "or": " or ",
        "x": " × ",
        "×": " × ",
        "by": " by ",
        "*": " × ",
    },
    **{
        "+/-": " ± ",
        "±": " ± ",
        "+": " + ",
        "to(-)": " to ",
        "to about": " to about ",
        "to ~": " to ~",
        "&": " and ",
        "and(-)": " and ",
    },
    **{
        ",": ", ",
        "to+": " to ",
        "xx": " × ",
        "and-": " and ",
        "or-": " or ",
        "x(-)": " × ",
        "/": "/",
        "upto": " up to ",
        "–": "–",
    },
}
_ON = frozenset({"on", "yes", "y", "1"})


def grouped(number: str) -> str:
    """A number with commas between its thousands ("1234567.5" -> "1,234,567.5"); other text as it is."""
    text = number.strip().replace(",", "")
    if not re.fullmatch(r"[-+−–]?\d+(?:\.\d+)?", text):
        return number.strip()
    whole, point, decimals = text.partition(".")
    sign = whole[0] if not whole[0].isdigit() else ""
    digits = whole[len(sign) :]
    if len(digits) > 3:
        digits = f"{int(digits):,}" if digits[0] != "0" else digits
    return f"{'-' if sign in ('−', '–') else sign}{digits}{point}{decimals}"


def _shown(number: str) -> str:
    """A number of {{convert}}, with its fractions ("1+1/2" -> "1 1/2") and powers of ten ("1e6")."""
    mixed = re.fullmatch(r"([-+−–]?)(?:(\d+)[+ ])?(\d+)//?(\d+)", number)
    if mixed:
        return f"{mixed[1]}{mixed[2] + ' ' if mixed[2] else ''}{mixed[3]}/{mixed[4]}"
    power = re.fullmatch(r"(.*\d)e([-+]?\d+)", number, re.IGNORECASE)
    if power:
        return f"{grouped(power[1])}×10^{int(power[2])}"
    return grouped(number)


def convert(arguments: Arguments) -> str:
    """{{convert|1300|mi|km}} "1,300 miles"; {{convert|6|to|8|ft|m|abbr=on}} "6 to 8 ft"; {{convert|5|ft|6|in}} "5 feet 6 inches".

    ValueError where it does not begin with a number.
    """
    parts = [part.replace("\u00a0", " ") for part in arguments.positional]
    if not parts or not _NUMBER.fullmatch(parts[0]):
        raise ValueError(parts)
    spelled = arguments.get("spell") != "" and re.fullmatch(r"\d", parts[0])
    number = _SMALL[int(parts[0])] if spelled else _shown(parts[0])
    if arguments.get("spell").istitle() and spelled:
        number = number.capitalize()
    single = parts[0] in ("1", "-1")
    position = 1
    while (
        position + 1 < len(parts)
        and (word := _BETWEEN.get(parts[position].lower()))
        and _NUMBER.fullmatch(parts[position + 1])
    ):
        number += word + _shown(parts[position + 1])
        single = False
        position += 2
    if position >= len(parts):
        return number
    is_adjective = arguments.get("adj") in ("on", "mid", "pre", "1", "ri1")
    is_short = arguments.get("abbr") in {"on", "in", "unit", "values", "~"} | _ON and arguments.get("abbr") != "none"
    short_by_name = arguments.template == "cvt" and arguments.get("abbr") not in ("off", "none")
    text = _quantity(number, parts[position], single, is_adjective, is_short or short_by_name)
    position += 1
    # A second number with its unit belongs to the first: feet and inches, pounds and ounces.
    while position + 1 < len(parts) and _NUMBER.fullmatch(parts[position]) and find_unit(parts[position + 1]):
        second = _quantity(
            _shown(parts[position]),
            parts[position + 1],
            parts[position] == "1",
            is_adjective,
            is_short or short_by_name,
        )
        text += ("-" if is_adjective else " ") + second
        position += 2
    if is_adjective and arguments.get("adj") == "mid":
        words = [part for part in parts[position:] if not find_unit(part) and not part.isdecimal()]
        text += f"-{words[-1].strip(' -')}" if words else ""
    return text


_SMALL = "zero one two three four five six seven eight nine".split()


def _quantity(number: str, code: str, single: bool, is_adjective: bool, is_short: bool) -> str:
    """A number with its unit in words, or its symbol."""
    unit = find_unit(code)
    if unit is None:
        return f"{number} {code}"
    if is_short or unit.symbol[0] == "°":
        tight = unit.symbol[0] == "/"
        return f"{number}{'' if tight else ' '}{unit.symbol}"
    if is_adjective:
        return f"{number}-{unit.singular.replace(' ', '-')}"
    return f"{number} {unit.singular if single else unit.plural}"


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
        text += f"±{numbers[1].lstrip('+')}"
    if power := arguments.get("e"):
        text += f"×10^{power}"
    unit = re.sub(r"<[^<>]*>", "", arguments.get("u") or arguments.get("ul"))
    per = arguments.get("up") or arguments.get("upl")
    text += f" {unit}" if unit else ""
    prefix, suffix = arguments.get("p"), arguments.get("s")
    return f"{prefix}{text}{'/' + per if per else ''}{suffix}"


def power_of_ten(arguments: Arguments) -> str:
    """{{e|24}} "×10^24"."""
    return f"×10^{arguments[0]}"


def coordinates(arguments: Arguments) -> str:
    """{{coord|13|19|N|169|9|W}} "13°19′N 169°9′W" where it stands in the text, a HOLE where it stands beside the title."""
    if arguments.get("display", "inline").strip() in ("title", "t"):
        return HOLE
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
    return text.strip() or HOLE


def height(arguments: Arguments) -> str:
    """{{height|ft=6|in=2}} "6 ft 2 in"."""
    parts = [f"{arguments.get(key)} {key}" for key in ("m", "cm", "ft", "in") if arguments.get(key)]
    return " ".join(parts) or HOLE


def price(arguments: Arguments) -> str:
    """{{format price|3160384}}, {{inflation|US|3160384|2003}}: the amount as it was, with commas."""
    return grouped(arguments[1] if arguments.template.startswith("inflation") else arguments[0])


_CURRENCIES = {
    **dict.fromkeys(["us$", "usd", "us dollar"], "US$"),
    **{
        "a$": "A$",
        "aud": "A$",
        "au$": "A$",
        "c$": "C$",
        "cad": "C$",
        "ca$": "C$",
        "nz$": "NZ$",
        "nzd": "NZ$",
        "hk$": "HK$",
    },
    **{
        "gbp": "£",
        "£": "£",
        "pound sterling": "£",
        "euro": "€",
        "€": "€",
        "eur": "€",
        "inr": "₹",
        "indian rupee": "₹",
        "₹": "₹",
    },
    **{
        "¥": "¥",
        "jpy": "¥",
        "cny": "CN¥",
        "krw": "₩",
        "₩": "₩",
        "rub": "₽",
        "php": "₱",
        "philippine peso": "₱",
        "brl": "R$",
        "chf": "CHF ",
    },
    **{
        "pound": "£",
        "yen": "¥",
        "rmb": "RMB ",
        "sek": "SEK ",
        "nok": "NOK ",
        "dkk": "DKK ",
        "ils": "₪",
        "mxn": "MX$",
        "zar": "R",
        "try": "₺",
    },
}


def money(arguments: Arguments) -> str:
    """{{US$|2 billion}} "US$2 billion"."""
    return f"{_CURRENCIES[arguments.template]}{grouped(arguments.get(0))}"


def density(arguments: Arguments) -> str:
    """{{pop density|3645257|640081.87|km2|sqmi|prec=1}}: population divided by area, "5.7 inhabitants per square kilometre"."""
    population, area = (float(arguments[index].replace(",", "")) for index in (0, 1))
    unit = find_unit(arguments[2])
    digits = int(arguments.get("prec") or 0)
    return f"{population / area:,.{digits}f} inhabitants per {unit.singular if unit else arguments[2]}"


def track_gauge(arguments: Arguments) -> str:
    """{{track gauge|1435mm}} "1,435 mm", {{track gauge|4ft8.5in}} "4 ft 8.5 in"."""
    spaced = re.sub(r"(?<=\d)(?=[a-z])", " ", arguments[0].removesuffix("al").removesuffix("lk"))
    spaced = re.sub(r"(?<=[a-z])(?=\d)", " ", spaced)
    return re.sub(r"\d{4,}", lambda match: grouped(match[0]), spaced)


def rounded(arguments: Arguments) -> str:
    """{{number|1234567}}, {{formatnum}}, {{gaps|1|234}}: digits in groups."""
    return grouped("".join(arguments.positional))


def long_scale(arguments: Arguments) -> str:
    """{{mi to km|10}} and its like: the quantity in its first unit."""
    return convert(Arguments("convert", [arguments[0], arguments.template.partition(" ")[0]], arguments.named))


RENDERERS = {
    **dict.fromkeys(["convert", "cvt", "conv", "convertar", "convinfobox", "convert2", "unit convert"], convert),
    **dict.fromkeys(
        ["mi to km", "km to mi", "ft to m", "m to ft", "km2 to mi2", "mi2 to km2", "in to cm", "lb to kg"], long_scale
    ),
    **dict.fromkeys(["frac", "fraction", "sfrac", "frac2", "tfrac", "sfrac2", "ratio", "dfrac", "cfrac"], fraction),
    **dict.fromkeys(["val", "value", "physconst", "nval"], value),
    **dict.fromkeys(["e", "esp", "x10", "x10^", "10^"], power_of_ten),
    **dict.fromkeys(["coord", "coordinates", "geocoord"], coordinates),
    **dict.fromkeys(["height", "ft in"], height),
    **dict.fromkeys(["format price", "formatprice", "inflation", "inflation-old"], price),
    **dict.fromkeys(_CURRENCIES, money),
    **dict.fromkeys(["pop density", "population density", "popdens"], density),
    **dict.fromkeys(["railgauge", "track gauge", "rail gauge"], track_gauge),
    **dict.fromkeys(["number", "gaps", "formatnum", "num", "digits"], rounded),
}
