"""Templates of dates and times."""

import re

from data_prep.wikitext.templates.arguments import Arguments, names
from data_prep.wikitext.templates.inline import Renderer

_MONTHS = names("January|February|March|April|May|June|July|August|September|October|November|December")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)")


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


def date(arguments: Arguments) -> str:
    """{{start date|1990|1|2|df=y}}, {{birth date and age|...}}, {{date|1990-01-02|mdy}}, ...: the date in words."""
    if iso := _ISO.fullmatch(arguments[0]):
        return format_date(iso[1], iso[2], iso[3], arguments.get(1).lower() != "mdy")
    return format_date(arguments[0], arguments.get(1), arguments.get(2), bool(arguments.get("df")))


def as_of(arguments: Arguments) -> str:
    """{{as of|2014|6|lc=y}} "as of June 2014"; {{as of|2014|alt=in 2014|post=,}} "in 2014,"."""
    if words := arguments.get("alt"):
        return f"{words}{arguments.get('post')}"
    shown = format_date(arguments[0], arguments.get(1), arguments.get(2), arguments.get("df").lower() != "us")
    if arguments.get("bare"):
        return shown
    lead = "since" if arguments.get("since") else "as of"
    return f"{lead if arguments.get('lc') else lead.capitalize()} {shown}{arguments.get('post')}"


def circa(arguments: Arguments) -> str:
    """{{circa|1200|1250}}: "c. 1200 – c. 1250"."""
    years = [year for year in arguments.positional[:2] if year]
    return " – ".join(f"c. {year}" for year in years) or "c."


def _years(before: str) -> Renderer:
    """{{fl.|1200|1250}}: "fl. 1200–1250"."""
    return lambda arguments: f"{before} {'–'.join(filter(None, arguments.positional[:2]))}".strip()


def old_style(arguments: Arguments) -> str:
    """{{OldStyleDate|February 2|1905|January 20}}: "February 2, 1905": the date in the new style only."""
    month_and_day, year = arguments[0], arguments.get(1)
    separator = ", " if month_and_day[-1:].isdecimal() else " "
    return f"{month_and_day}{separator}{year}" if year else month_and_day


def duration(arguments: Arguments) -> str:
    """{{duration|1|2|3}} and {{duration|h=1|m=2|s=3}} "1:02:03"; {{duration|m=5|s=3}} "5:03"."""
    hours, minutes, seconds = (arguments.get(key) or arguments.get(at) for at, key in enumerate("hms"))
    parts = [int(part or 0) for part in (hours, minutes, seconds)]
    shown = parts if parts[0] else parts[1:]
    return ":".join([str(shown[0]), *(f"{part:02d}" for part in shown[1:])])


_DATES = """
    start date|end date|birth date|birth date and age|death date|death date and age|bda|dda|dob|start date and age
    dts|date
    film date|launch date|release date|birth-date and age|death-date and age|date table sorting|opening date
    end date and age
    """
RENDERERS = {
    **dict.fromkeys(names(_DATES), date),
    **dict.fromkeys(["as of", "asof", "since"], as_of),
    **dict.fromkeys(["circa", "c.", "ca", "ca.", "c"], circa),
    **dict.fromkeys(["floruit", "fl.", "fl"], _years("fl.")),
    **dict.fromkeys(["reign", "r.", "reigned"], _years("r.")),
    "duration": duration,
    **dict.fromkeys(["oldstyledate", "old style date", "oldstyledatedy"], old_style),
}
