"""Text that commands print: counts, durations, Markdown tables; and what others wrote, made safe to print."""

import difflib
import re
from collections.abc import Iterable, Sequence

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line ends, bidirectional marks, and what UTF-8 cannot encode."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@'\"]+(?=@)")
_QUERY = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"?]*\?)[^\s'\"),;]+")


def printable(text: object, keep: str = "") -> str:
    """Returns text as it may be shown, on one line: control characters and bidirectional marks are escaped.

    A name or label that somebody else wrote could otherwise control the terminal, or show other letters than it has.
    The characters of `keep` stay, such as line breaks of a whole page.
    """
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], str(text))


def without_secrets(text: str) -> str:
    """Returns text in which URLs have neither user and password nor a query: these may be secrets."""
    return _QUERY.sub(r"\1***", _USER.sub(r"\1***", text))


def encodable(text: str) -> str:
    """Joins surrogate pairs in `text`; a single surrogate, which JSON allows ("\\ud83d"), becomes U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Returns "did you mean X?" for the known name that is nearest to an unknown one, `otherwise` if none is near."""
    names = {name.strip("-"): name for name in known}  # dashes that all flags have make none similar
    near = difflib.get_close_matches(word.strip("-"), names, n=1, cutoff=0.5)
    return f"did you mean {names[near[0]]}?" if near else otherwise


def quantity(count: float, noun: str) -> str:
    """A count with its noun: "1 document", "2,000 documents"."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Formats a duration: "45 s", "3 min 5 s", "2 h 10 min", "1,200 h"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {second} s"
    hours, minute = divmod(minutes, 60)
    return f"{hours} h {minute} min" if hours < 100 else f"{hours:,} h"


def markdown_table(header: Sequence[object], rows: Iterable[Sequence[object]], alignment: str = "") -> str:
    """Formats a table of cells that are Markdown already. alignment: "l" or "r" for each column; by default "l"."""
    rules = ["---:" if side == "r" else "---" for side in alignment or "l" * len(header)]
    cells = [list(map(printable, header)), *(list(map(printable, row)) for row in rows)]
    title, *lines = (f"| {' | '.join(row)} |" for row in cells)
    return "\n".join([title, f"|{'|'.join(rules)}|", *lines])
