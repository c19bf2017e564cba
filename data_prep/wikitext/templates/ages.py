"""Templates that count time: ages, eras, millions of years, and the date on which the page was saved."""

from datetime import date

from data_prep.wikitext.templates.arguments import Arguments
from data_prep.wikitext.templates.inline import Renderer


def _dates(arguments: Arguments) -> tuple[date, date]:
    """Returns the two dates of {{age|1946|4|29|1990|1|2}}. The second defaults to the day the page was saved."""
    numbers = [int(part) for part in arguments.positional[:6] if part]
    if not numbers:
        raise IndexError("no date")
    begin = date(*(numbers[:3] + [1] * (3 - len(numbers))))
    if len(numbers) > 3:
        return begin, date(*(numbers[3:] + [1] * (6 - len(numbers))))
    if arguments.written is None:
        raise ValueError("nothing says when the page was saved")
    return begin, arguments.written


def _whole_years(begin: date, end: date) -> int:
    return end.year - begin.year - ((end.month, end.day) < (begin.month, begin.day))


def age(arguments: Arguments) -> str:
    """{{age|1946|4|29|1990|1|2}} "43": whole years between two dates."""
    return str(_whole_years(*_dates(arguments)))


def age_in_days(arguments: Arguments) -> str:
    """{{age in days|1990|1|2|1990|2|1}} "30"."""
    begin, end = _dates(arguments)
    return f"{(end - begin).days:,}"


def age_in_full(arguments: Arguments) -> str:
    """{{age in years, months and days|1775|4|19|1783|9|3}}: "8 years, 4 months and 15 days"."""
    begin, end = _dates(arguments)
    months = (end.year - begin.year) * 12 + end.month - begin.month - (end.day < begin.day)
    year, month = divmod(begin.year * 12 + begin.month - 1 + months, 12)
    days = (end - date(year, month + 1, 1)).days - begin.day + 1
    counts = ((months // 12, "year"), (months % 12, "month"), (max(days, 0), "day"))
    parts = [f"{count} {unit}{'s' * (count != 1)}" for count, unit in counts if count]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def year_of_birth(arguments: Arguments) -> str:
    """{{birth based on age as of date|35|2010|5|1}}: "1974 or 1975"."""
    year = int(arguments[1]) - int(arguments[0])
    return f"{year - 1} or {year}"


def years_since(arguments: Arguments) -> str:
    """{{years since|1990}}: years up to the one in which the page was saved."""
    if arguments.written is None:
        raise ValueError("nothing says when the page was saved")
    return str(arguments.written.year - int(arguments[0]))


def _before_present(words: str) -> Renderer:
    """{{mya|65|60}}: "65–60 million years ago"."""
    return lambda arguments: "–".join(filter(None, arguments.positional[:2])) + f" {words}"


def _era(name: str) -> Renderer:
    """{{BCE|500}}: "500 BCE". Without a year such names mean something else: {{ce}} asks for copy editing."""

    def render(arguments: Arguments) -> str:
        if not arguments[0][:1].isdecimal():
            raise ValueError("no year")
        return f"{arguments[0]} {name}"

    return render


def _today(pattern: str) -> Renderer:
    """{{CURRENTYEAR}} and similar templates: the date on which the page was saved."""

    def render(arguments: Arguments) -> str:
        if arguments.written is None:
            raise ValueError("nothing says when the page was saved")
        return arguments.written.strftime(pattern).lstrip("0")

    return render


def decade(arguments: Arguments) -> str:
    """{{decade|1994}}: "1990s"."""
    return f"{int(arguments[0].rstrip('s')) // 10 * 10}s"


RENDERERS: dict[str, Renderer] = {
    **dict.fromkeys(["age", "age in years"], age),
    **dict.fromkeys(["age in days", "days since", "age in days nts"], age_in_days),
    **dict.fromkeys(["age in years, months and days", "age in years and months"], age_in_full),
    **dict.fromkeys(["years since", "years ago"], years_since),
    "birth based on age as of date": year_of_birth,
    **dict.fromkeys(["mya", "million years ago"], _before_present("million years ago")),
    **dict.fromkeys(["bya", "billion years ago"], _before_present("billion years ago")),
    **dict.fromkeys(["kya", "thousand years ago"], _before_present("thousand years ago")),
    "ma": _before_present("Ma"),
    "ga": _before_present("Ga"),
    "bce": _era("BCE"),
    "bc": _era("BC"),
    "ce": _era("CE"),
    "ad": _era("AD"),
    **dict.fromkeys(["decade", "decade link"], decade),
    **dict.fromkeys(["currentyear", "localyear", "thisyear"], _today("%Y")),
    **dict.fromkeys(["currentmonthname", "localmonthname", "currentmonth"], _today("%B")),
    **dict.fromkeys(["currentday", "localday", "currentday2"], _today("%d")),
    **dict.fromkeys(["currentdayname", "localdayname"], _today("%A")),
    "currentdate": _today("%d %B %Y"),
}
