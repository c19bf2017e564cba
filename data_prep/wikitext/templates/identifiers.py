"""Templates of ships, stocks, airports and roads."""

from data_prep.wikitext.templates.arguments import Arguments, names, shows

_SHIP_PREFIXES = """
    uss|hms|hmas|hmcs|hmnzs|hmsas|hmis|hmy|hmt|hmhs|rms|ss|mv|ms|mf|mts|gts|gmv|hsc|sv|ps|rv|tss|smu|ins|pns|usns|uscgc
    uscg|usat|usav|usrc|uscs|usc&gs|usft|uslht|css|sms|hdms|hnlms|hnoms|hswms|knm|rfa|orp|ara|arv|bap|bns|brp|esps|fgs
    htms|ijn|jds|js|kri|nms|nrp|ov|rfs|roks|rocs|rss|sas|tcg|tcsg
"""
_NOT_UPPER = {"hdms": "HDMS", "hnlms": "HNLMS", "hnoms": "HNoMS", "hswms": "HSwMS"}
# A template's last number says which parts of the name to show. It is a sum of these values.
_PREFIX, _NAME, _IDENTIFIER = 4, 2, 1

_EXCHANGES = names(
    "NYSE|NASDAQ|LSE|TSX|ASX|BSE|NSE|SEHK|TYO|SGX|KRX|FWB|SIX|JSE|OTCQB|OTCQX|OTC Pink|NYSE American|Euronext|ISIN"
    "|NYSE Arca"
)
_EXCHANGE_NAMES = {name.lower(): name for name in _EXCHANGES} | {"tyo2": "TYO"}


@shows("ship", kind="english")
def ship(arguments: Arguments) -> str:
    """{{ship|French ship|Redoutable|1791}} "French ship Redoutable (1791)"; with 6 after it the year is not shown."""
    return _ship(*(arguments.get(index) for index in range(4)))


@shows(_SHIP_PREFIXES, kind="english")
def ship_with_prefix(arguments: Arguments) -> str:
    """{{USS|Hornet|CV-12}} "USS Hornet (CV-12)", {{HMS|Ajax|22|6}} "HMS Ajax", {{SMS|Emden||2}} "Emden"."""
    prefix = _NOT_UPPER.get(arguments.template, arguments.template.upper())
    return _ship(prefix, *(arguments.get(index) for index in range(3)))


def _ship(prefix: str, name: str, identifier: str, code: str) -> str:
    shown = int(code) if code.isdecimal() and 0 < int(code) < 8 else _PREFIX | _NAME | _IDENTIFIER
    words = [word for word, bit in ((prefix, _PREFIX), (name, _NAME)) if word and shown & bit]
    if identifier and shown & _IDENTIFIER:
        words.append(f"({identifier})" if shown & _NAME else identifier)
    if not words:
        raise IndexError("no name")
    return " ".join(words)


@shows("sclass|sclass-|sclass2|sclass2-|ship class", kind="english")
def ship_class(arguments: Arguments) -> str:
    """{{sclass|Iowa|battleship}} "Iowa-class battleship"; a third argument 0 "Iowa-class", 4 "Iowa class", 5 "Iowa"."""
    name, kind, code = arguments[0], arguments.get(1), arguments.get(2)
    short = {"0": f"{name}-class", "4": f"{name} class", "5": name}
    return short.get(code) or f"{name}-class {kind}".strip()


@shows("|".join(_EXCHANGE_NAMES), kind="english")
def stock(arguments: Arguments) -> str:
    """{{NYSE|IBM}}: "NYSE: IBM"."""
    return f"{_EXCHANGE_NAMES[arguments.template]}: {arguments[0]}"


@shows("airport codes|airportcodes|airport codes2", kind="english")
def airport(arguments: Arguments) -> str:
    """{{airport codes|LAX|KLAX|LAX}}: "(IATA: LAX, ICAO: KLAX, FAA LID: LAX)"."""
    labels = zip(("IATA", "ICAO", "FAA LID"), arguments.positional)
    codes = ", ".join(f"{label}: {code}" for label, code in labels if code)
    if not codes:
        raise IndexError("no code")
    return codes if arguments.get("p") == "n" else f"({codes})"


@shows("jct", kind="english")
def road_junction(arguments: Arguments) -> str:
    """{{jct|state=CA|I|5|SR|99}}: "I-5 / SR 99"."""
    roads = zip(arguments.positional[::2], arguments.positional[1::2])
    return " / ".join(f"I-{number}" if kind == "I" else f"{kind} {number}" for kind, number in roads if number)
