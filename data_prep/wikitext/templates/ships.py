"""Templates of the names of ships, which articles on naval history use everywhere."""

from data_prep.wikitext.templates.arguments import Arguments, names

_PREFIXES = """
    uss|hms|hmas|hmcs|hmnzs|hmsas|hmis|hmy|hmt|hmhs|rms|ss|mv|ms|mf|mts|gts|gmv|hsc|sv|ps|rv|tss|smu|ins|pns|usns|uscgc
    uscg|usat|usav|usrc|uscs|usc&gs|usft|uslht|css|sms|hdms|hnlms|hnoms|hswms|knm|rfa|orp|ara|arv|bap|bns|brp|esps|fgs
    htms|ijn|jds|js|kri|nms|nrp|ov|rfs|roks|rocs|rss|sas|tcg|tcsg
    """
_NOT_UPPER = {"hdms": "HDMS", "hnlms": "HNLMS", "hnoms": "HNoMS", "hswms": "HSwMS"}
# A template's last number says which parts of the name to show. It is a sum of these values.
_PREFIX, _NAME, _IDENTIFIER = 4, 2, 1


def ship(arguments: Arguments) -> str:
    """{{ship|French ship|Redoutable|1791}} "French ship Redoutable (1791)"; with 6 after it the year is not shown."""
    prefix, name, identifier, code = (arguments.get(index) for index in range(4))
    return _ship(prefix, name, identifier, code)


def ship_with_prefix(arguments: Arguments) -> str:
    """{{USS|Hornet|CV-12}} "USS Hornet (CV-12)", {{HMS|Ajax|22|6}} "HMS Ajax", {{SMS|Emden||2}} "Emden"."""
    prefix = _NOT_UPPER.get(arguments.template, arguments.template.upper())
    name, identifier, code = (arguments.get(index) for index in range(3))
    return _ship(prefix, name, identifier, code)


def _ship(prefix: str, name: str, identifier: str, code: str) -> str:
    shown = int(code) if code.isdecimal() and 0 < int(code) < 8 else _PREFIX | _NAME | _IDENTIFIER
    words = [word for word, bit in ((prefix, _PREFIX), (name, _NAME)) if word and shown & bit]
    if identifier and shown & _IDENTIFIER:
        words.append(f"({identifier})" if shown & _NAME else identifier)
    if not words:
        raise IndexError("no name")
    return " ".join(words)


def ship_class(arguments: Arguments) -> str:
    """{{sclass|Iowa|battleship}} "Iowa-class battleship"; a third argument 0 "Iowa-class", 4 "Iowa class", 5 "Iowa"."""
    name, kind, code = arguments[0], arguments.get(1), arguments.get(2)
    short = {"0": f"{name}-class", "4": f"{name} class", "5": name}
    return short.get(code) or f"{name}-class {kind}".strip()


RENDERERS = {
    **dict.fromkeys(names(_PREFIXES), ship_with_prefix),
    "ship": ship,
    **dict.fromkeys(["sclass", "sclass-", "sclass2", "sclass2-", "ship class"], ship_class),
}
