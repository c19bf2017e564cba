"""Measures what is removed from each book: its frame, its table of contents, and its headings.

    python -m benchmarks.book_losses --books DIR

Counts are characters without white space. The last column says how many more are lost if a line "Contents" stands above
each chapter, as in books that were made from web pages. It is the title of a chapter at most.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, entry_point
from data_prep.sources.book_text import book_to_prose, drop_contents, drop_gutenberg, is_heading
from data_prep.sources.books import decode, find_books

_CHAPTER = re.compile(r"(?:chapter|book|volume|letter) [ivxlc\d]+\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?:\A|[a-z][.!?][\"')]?|\n)\Z")


def characters(text: str) -> int:
    """Returns the number of characters that are not white space."""
    return len("".join(text.split()))


def with_links(body: str) -> str:
    """Returns a book with a line "Contents" above each heading of a chapter that follows the end of a sentence."""
    lines: list[str] = []
    for line in body.split("\n"):
        is_chapter = _CHAPTER.match(line.strip()) and is_heading([line.strip()])
        if is_chapter and (not lines or _SENTENCE_END.search(lines[-1] or "\n")):
            lines += ["Contents"] if lines and lines[-1] else ["Contents", ""]
        lines.append(line)
    return "\n".join(lines)


def losses(text: str) -> tuple[int, int, int, int, int]:
    """Returns the characters of a book, and those lost in frame, contents and headings, and for links."""
    framed = drop_gutenberg(text)
    body = drop_contents(framed)
    prose = book_to_prose(body)
    whole, kept = characters(framed), characters(prose)
    links = kept - characters(book_to_prose(with_links(body)))
    return characters(text), characters(text) - whole, whole - characters(body), characters(body) - kept, links


def report(args: argparse.Namespace) -> None:
    """Prints the table."""
    print("| book | characters | frame | contents | headings | lost | lost to links |\n|---|---|---|---|---|---|---|")
    total = [0] * 5
    for path, name in find_books(args.books):
        text = decode(Path(path).read_bytes())
        if text is None:
            continue
        found = losses(text)
        total = [a + b for a, b in zip(total, found)]
        _print_row(name, found)
    _print_row("all", total)


def _print_row(name: str, found: Sequence[int]) -> None:
    size, frame, contents, headings, links = found
    lost = (frame + contents + headings) / max(1, size)
    print(f"| {name} | {size:,} | {frame:,} | {contents:,} | {headings:,} | {lost:.2%} | {links:,} |")


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.book_losses", description=__doc__.splitlines()[0])
    p.add_argument("--books", required=True, type=Path, metavar="DIR", help="text files, one book each")
    report(p.parse_all(argv))


if __name__ == "__main__":
    sys.exit(main())
