"""Markdown and YAML of a model card, from values that may hold any text."""

import json
import re
from collections.abc import Mapping, Sequence

_SPECIAL = re.compile(r"[\\`*_\[\]<>|~#]")


def plain(text: object) -> str:
    """Text as one line in which no character has a meaning in Markdown."""
    return _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(str(text).split()))


def table(rows: Sequence[tuple[str, ...]], header: Sequence[str]) -> str:
    """A table of cells that are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def front_matter(fields: Mapping[str, str | Sequence[str]]) -> str:
    """The YAML at the top of a card. Empty fields are left out.

    JSON is YAML, and its strings stay strings: without quotes, YAML reads the language "no" as false.
    """
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items() if value]
    return "\n".join(["---", *lines, "---"])


def duration(seconds: float) -> str:
    """Seconds as people say them: "45 s", "3 min 5 s", "2 h 10 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def percent(value: float, low: float | None = None, high: float | None = None) -> str:
    """A fraction in percent, with its 95 % interval."""
    interval = "" if low is None or high is None else f" (95 % interval {100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * value:.1f} %{interval}"
