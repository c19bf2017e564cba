"""Of Project Gutenberg's files of all times only the book is left."""

import tomllib
from pathlib import Path

import pytest

from data_prep.sources.books import book_to_prose

BOOKS = tomllib.loads(Path(__file__).with_name("books.toml").read_text(encoding="utf-8"))
SHORT = "It was so, and the river ran on.\n\nAnd so it stayed for a year."
LONG = "\n\n".join(["It was so, and the river ran on to the sea as it does."] * 60)
LICENCE = "\n\n".join(["You may copy it, give it away or re-use it under the terms of the licence."] * 140)
SMALL = (
    "***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***\n"
    f"Why is this here?\n\n{LICENCE}\n\n*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n"
)
HEAD = (
    "The Project Gutenberg EBook of A Tale, by X\n\nCopyright laws are changing all over the world.\n\nTitle: A Tale\n"
)
START = "*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***"
END = "*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***"

FILES = {
    "1990s: small print before": f"{HEAD}\n{SMALL}\n\n{{}}\n\n\nEnd of the Project Gutenberg Etext of T\n",
    "two lines": f"***START OF THIS PROJECT GUTENBERG EBOOK A\nTALE***\n\n{{}}\n\n{END.replace('THE', 'THIS')}\n",
    "2001: two marks": f"{HEAD}\n{SMALL}\n{START}\n\n{{}}\n\nThe End of the Project Gutenberg EBook of T\n",
    "2003: small print after": f"{HEAD}\n{START}\n\n{{}}\n\n{END}\n\nThis file should be named x10.txt\n\n{SMALL}",
    "2003: two ends": f"{HEAD}\n{START}\n\n{{}}\n\nEnd of Project Gutenberg's T\n\n{END}\n\n{SMALL}\n\nMore.\n",
    "2010: licence after": f"{HEAD}\n{START}\n\n{{}}\n\n{END}\n\n***** This file should be named *****\n\n{LICENCE}\n",
    "no start": "{}\n\nEnd of the Project Gutenberg EBook of T\n\n" + LICENCE,
    "German": f"{HEAD}\n{SMALL}\n\n{{}}\n\nEnde dieses Projekt Gutenberg Etextes T\n",
}


@pytest.mark.parametrize("book", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("form", FILES.values(), ids=FILES.keys())
def test_only_the_book_is_left(form: str, book: str) -> None:
    assert book_to_prose(form.format(book)).split("\n") == book.split("\n\n")


@pytest.mark.parametrize("first", FILES.values(), ids=FILES.keys())
@pytest.mark.parametrize("second", [form for name, form in FILES.items() if name != "no start"])
def test_two_works_in_a_file(first: str, second: str) -> None:
    text = f"{first.format(LONG)}\n\n{second.format(SHORT)}"
    assert book_to_prose(text).split("\n") == LONG.split("\n\n") + SHORT.split("\n\n")


@pytest.mark.parametrize("blocks", [*([block] for block in BOOKS["credits"]), BOOKS["credits"]])
def test_the_credits_go(blocks: list[str]) -> None:
    credits = "\n\n".join(blocks)
    assert book_to_prose(f"{HEAD}\n{START}\n\n{credits}\n\n\n{LONG}\n\n{END}\n").split("\n") == LONG.split("\n\n")


@pytest.mark.parametrize("title", ["Transcriber's Note", "TRANSCRIBER'S NOTES:", "Transcriber’s note"])
def test_the_transcribers_remarks_at_the_end_go(title: str) -> None:
    remarks = f"{title}\n\nOn page 5 a letter was changed.\n\nOn page 6 it was another."
    assert book_to_prose(f"{START}\n\n{LONG}\n\n\n{remarks}\n\n{END}\n").split("\n") == LONG.split("\n\n")


@pytest.mark.parametrize("begin", BOOKS["like_credits"])
def test_a_book_that_begins_like_credits_stays(begin: str) -> None:
    assert book_to_prose(f"{START}\n\n{begin}\n\n{SHORT}\n\n{END}\n").split("\n") == [begin, *SHORT.split("\n\n")]


def test_a_long_text_after_an_end_is_a_work() -> None:
    volumes = [LONG * 30, LONG * 40]
    text = f"{START}\n\n{volumes[0]}\n\nEnd of Project Gutenberg's A Tale, vol. 1\n\n{volumes[1]}\n\n{END}\n{LICENCE}\n"
    assert book_to_prose(text).split("\n") == [part for volume in volumes for part in volume.split("\n\n")]


def test_credits_as_long_as_a_chapter_are_text() -> None:
    """The search for their end took a time that doubled with each line."""
    lines = "\n".join(["Produced by the river, it went on and on."] * 60)
    assert book_to_prose(f"{START}\n{lines}\n\n{SHORT}\n\n{END}\n").startswith("Produced by the river")
