"""Templates of dates, times, ages and eras, and of the date on which the page was saved."""

import re
from datetime import date

from data_prep.wikitext.templates.arguments import Arguments, Renderer, names, shows

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


@shows(
    """
    start date|end date|birth date|birth date and age|death date|death date and age|bda|dda|dob|start date and age
    dts|date|film date|launch date|release date|birth-date and age|death-date and age|date table sorting|opening date
    end date and age
    """,
    kind="english",
)
def date_in_words(arguments: Arguments) -> str:
    """{{start date|1990|1|2|df=y}}, {{birth date and age|...}}, {{date|1990-01-02|mdy}}, ...: the date in words."""
    if iso := _ISO.fullmatch(arguments[0]):
        return format_date(iso[1], iso[2], iso[3], arguments.get(1).lower() != "mdy")
    return format_date(arguments[0], arguments.get(1), arguments.get(2), bool(arguments.get("df")))


@shows("as of|asof|since", kind="english")
def as_of(arguments: Arguments) -> str:
    """{{as of|2014|6|lc=y}} "as of June 2014"; {{as of|2014|alt=in 2014|post=,}} "in 2014,"."""
    if words := arguments.get("alt"):
        return f"{words}{arguments.get('post')}"
    shown = format_date(arguments[0], arguments.get(1), arguments.get(2), arguments.get("df").lower() != "us")
    if arguments.get("bare"):
        return shown
    lead = "since" if arguments.get("since") else "as of"
    return f"{lead if arguments.get('lc') else lead.capitalize()} {shown}{arguments.get('post')}"


@shows("circa|c.|ca|ca.|c", kind="english")
def circa(arguments: Arguments) -> str:
    """{{circa|1200|1250}}: "c. 1200 – c. 1250"."""
    years = [year for year in arguments.positional[:2] if year]
    return " – ".join(f"c. {year}" for year in years) or "c."


@shows("floruit|fl.|fl", kind="english")
def floruit(arguments: Arguments) -> str:
    """{{fl.|1200|1250}}: "fl. 1200–1250"."""
    return f"fl. {arguments.join('–', 2)}".strip()


@shows("reign|r.|reigned", kind="english")
def reign(arguments: Arguments) -> str:
    """{{reign|1200|1250}}: "r. 1200–1250"."""
    return f"r. {arguments.join('–', 2)}".strip()


@shows("oldstyledate|old style date|oldstyledatedy", kind="english")
def old_style(arguments: Arguments) -> str:
    """{{OldStyleDate|February 2|1905|January 20}}: "February 2, 1905": the date in the new style only."""
    month_and_day, year = arguments[0], arguments.get(1)
    separator = ", " if month_and_day[-1:].isdecimal() else " "
    return f"{month_and_day}{separator}{year}" if year else month_and_day


@shows("duration", kind="english")
def duration(arguments: Arguments) -> str:
    """{{duration|1|2|3}} and {{duration|h=1|m=2|s=3}} "1:02:03"; {{duration|m=5|s=3}} "5:03"."""
    hours, minutes, seconds = (int(arguments.get(key) or arguments.get(at) or 0) for at, key in enumerate("hms"))
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _begin_and_end(arguments: Arguments) -> tuple[date, date]:
    """Returns the two dates of {{age|1946|4|29|1990|1|2}}. The second defaults to the day the page was saved."""
    numbers = [int(part) for part in arguments.positional[:6] if part]
    if not numbers:
        raise IndexError("no date")
    begin = date(*(numbers[:3] + [1] * (3 - len(numbers))))
    if len(numbers) > 3:
        return begin, date(*(numbers[3:] + [1] * (6 - len(numbers))))
    return begin, _day_saved(arguments)


def _day_saved(arguments: Arguments) -> date:
    if arguments.written is None:
        raise ValueError("nothing says when the page was saved")
    return arguments.written


@shows("age|age in years", kind="english")
def age(arguments: Arguments) -> str:
    """{{age|1946|4|29|1990|1|2}} "43": whole years between two dates."""
    begin, end = _begin_and_end(arguments)
    return str(end.year - begin.year - ((end.month, end.day) < (begin.month, begin.day)))


@shows("age in days|days since|age in days nts", kind="english")
def age_in_days(arguments: Arguments) -> str:
    """{{age in days|1990|1|2|1990|2|1}} "30"."""
    begin, end = _begin_and_end(arguments)
    return f"{(end - begin).days:,}"


@shows("age in years, months and days|age in years and months", kind="english")
def age_in_full(arguments: Arguments) -> str:
    """{{age in years, months and days|1775|4|19|1783|9|3}}: "8 years, 4 months and 15 days"."""
    begin, end = _begin_and_end(arguments)
    months = (end.year - begin.year) * 12 + end.month - begin.month - (end.day < begin.day)
    year, month = divmod(begin.year * 12 + begin.month - 1 + months, 12)
    days = (end - date(year, month + 1, 1)).days - begin.day + 1
    counts = ((months // 12, "year"), (months % 12, "month"), (max(days, 0), "day"))
    parts = [f"{count} {unit}{'s' * (count != 1)}" for count, unit in counts if count]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


@shows("birth based on age as of date", kind="english")
def year_of_birth(arguments: Arguments) -> str:
    """{{birth based on age as of date|35|2010|5|1}}: "1974 or 1975"."""
    year = int(arguments[1]) - int(arguments[0])
    return f"{year - 1} or {year}"


@shows("years since|years ago", kind="english")
def years_since(arguments: Arguments) -> str:
    """{{years since|1990}}: years up to the one in which the page was saved."""
    return str(_day_saved(arguments).year - int(arguments[0]))


@shows("decade|decade link", kind="english")
def decade(arguments: Arguments) -> str:
    """{{decade|1994}}: "1990s"."""
    return f"{int(arguments[0].rstrip('s')) // 10 * 10}s"


def _before_present(words: str) -> Renderer:
    """{{mya|65|60}}: "65–60 million years ago"."""
    return lambda arguments: f"{arguments.join('–', 2)} {words}"


def _era(name: str) -> Renderer:
    """{{BCE|500}}: "500 BCE". Without a year such names mean something else: {{ce}} asks for copy editing."""

    def render(arguments: Arguments) -> str:
        if not arguments[0][:1].isdecimal():
            raise ValueError("no year")
        return f"{arguments[0]} {name}"

    return render


def _today(pattern: str) -> Renderer:
    """{{CURRENTYEAR}} and similar templates: the date on which the page was saved."""
    return lambda arguments: _day_saved(arguments).strftime(pattern).lstrip("0")


for _templates, _words in {
    "mya|million years ago": "million years ago",
    "bya|billion years ago": "billion years ago",
    "kya|thousand years ago": "thousand years ago",
    "ma": "Ma",
    "ga": "Ga",
}.items():
    shows(_templates, kind="english")(_before_present(_words))
for _name in ("BCE", "BC", "CE", "AD"):
    shows(_name.lower(), kind="english")(_era(_name))
for _templates, _pattern in {
    "currentyear|localyear|thisyear": "%Y",
    "currentmonthname|localmonthname|currentmonth": "%B",
    "currentday|localday|currentday2": "%d",
    "currentdayname|localdayname": "%A",
    "currentdate": "%d %B %Y",
}.items():
    shows(_templates, kind="english")(_today(_pattern))
