"""Templates that show codes: stocks, airports, roads."""

from data_prep.wikitext.templates.arguments import Arguments, names
from data_prep.wikitext.templates.inline import Renderer


def stock(arguments: Arguments) -> str:
    """{{NYSE|IBM}}: "NYSE: IBM"."""
    return f"{_EXCHANGES[arguments.template]}: {arguments[0]}"


def airport(arguments: Arguments) -> str:
    """{{airport codes|LAX|KLAX|LAX}}: "(IATA: LAX, ICAO: KLAX, FAA LID: LAX)"."""
    labels = zip(("IATA", "ICAO", "FAA LID"), arguments.positional)
    codes = ", ".join(f"{label}: {code}" for label, code in labels if code)
    if not codes:
        raise IndexError("no code")
    return codes if arguments.get("p") == "n" else f"({codes})"


def road_junction(arguments: Arguments) -> str:
    """{{jct|state=CA|I|5|SR|99}}: "I-5 / SR 99"."""
    roads = zip(arguments.positional[::2], arguments.positional[1::2])
    return " / ".join(f"I-{number}" if kind == "I" else f"{kind} {number}" for kind, number in roads if number)


_EXCHANGES = {
    name.lower(): name
    for name in names("NYSE|NASDAQ|LSE|TSX|ASX|BSE|NSE|SEHK|TYO|SGX|KRX|FWB|SIX|JSE|OTCQB|OTCQX|OTC Pink")
}
_EXCHANGES |= {
    "nyse american": "NYSE American",
    "euronext": "Euronext",
    "isin": "ISIN",
    "tyo2": "TYO",
    "nyse arca": "NYSE Arca",
}
RENDERERS: dict[str, Renderer] = {
    **dict.fromkeys(_EXCHANGES, stock),
    **dict.fromkeys(["airport codes", "airportcodes", "airport codes2"], airport),
    "jct": road_junction,
}
