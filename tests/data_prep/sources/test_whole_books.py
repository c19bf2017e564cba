"""Whole books keep their prose, whatever their headings, tables of contents and navigation lines are.

The books are generated.
"""

import itertools
import random
import textwrap
from collections.abc import Callable

import pytest

from data_prep.sources.books import book_to_prose

CHAPTERS = 14
LONG = 2  # a chapter of 40 paragraphs in the books of seed 5
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV")
ORDINAL = (
    *("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth", "Eleventh"),
    *("Twelfth", "Thirteenth", "Fourteenth"),
)
TITLES = [f"The {ordinal} Day of a Long Journey" for ordinal in ORDINAL]
HEADINGS: dict[str, Callable[[int], str]] = {
    "CHAPTER IV": lambda n: f"CHAPTER {ROMAN[n]}",
    "Chapter 4": lambda n: f"Chapter {n + 1}",
    "Chapter 4.": lambda n: f"Chapter {n + 1}.",
    "Chapter 4: Title": lambda n: f"Chapter {n + 1}: {TITLES[n]}",
    "CHAPTER IV. TITLE": lambda n: f"CHAPTER {ROMAN[n]}. {TITLES[n].upper()}",
    "Chapter IV, Title below": lambda n: f"Chapter {ROMAN[n]}\n\n{TITLES[n]}",
    "IV": lambda n: ROMAN[n],
    "IV. TITLE": lambda n: f"{ROMAN[n]}. {TITLES[n].upper()}",
    "4": lambda n: str(n + 1),
    "Book the Fourth": lambda n: f"Book the {ORDINAL[n]}",
    "Letter 4": lambda n: f"Letter {n + 1}",
    "PART FOUR": lambda n: f"PART THE {ORDINAL[n].upper()}",
    "ACT IV. SCENE I.": lambda n: f"ACT {ROMAN[n]}. SCENE I. A wood.",
    "TITLE": lambda n: TITLES[n].upper(),
}
# Chapters of few words; dialogue; lines that end with numbers; short sentences, which look like entries.
SENTENCES = (
    "He went down to the harbour before the others were awake, and waited there for the boat.",
    "“Well?” said he.",
    "'No,' she answered.",
    "It was the year 1848",
    "Mr. Brown was silent.",
    "The Duke of York had told him that there were 12",
    "of them, and that was all.",
    "I. for one, did not believe a word of it; nor did anybody else who had been there at the time.",
    "Book the room, act as you will, and part as friends.",
    "“Chapter 2,” he read out.",
    "The contents of the box were gone.",
    "Nobody knew why.",
)


def make_chapters(seed: int) -> list[list[str]]:
    """Returns the paragraphs of each chapter. Chapters have 1 to 40 of them."""
    generator = random.Random(seed)
    chapters = []
    for _ in range(CHAPTERS):
        paragraphs = []
        for _ in range(generator.choice((1, 3, 12, 40))):
            chosen = [generator.choice(SENTENCES) for _ in range(generator.randint(1, 9))]
            paragraphs.append(" ".join([*chosen, "And so it went on, as it always had."]))
        chapters.append(paragraphs)
    return chapters


def make_book(chapters: list[list[str]], heading: Callable[[int], str], front: str, between: str, width: int) -> str:
    """Returns the text of a book: `front`, then the chapters, each below its heading and above `between`."""
    parts = [front]
    for number, paragraphs in enumerate(chapters):
        parts += [heading(number), *(textwrap.fill(paragraph, width) for paragraph in paragraphs), between]
    return "\n\n".join(part for part in parts if part) + "\n"


@pytest.mark.parametrize("between", ["", "CONTENTS", "Contents\n\nNext", "Table of Contents"])
@pytest.mark.parametrize("name", HEADINGS)
def test_a_book_keeps_every_paragraph(name: str, between: str) -> None:
    heading = HEADINGS[name]
    for seed, width in ((0, 45), (1, 72)):
        chapters = make_chapters(seed)
        expected = [paragraph for paragraphs in chapters for paragraph in paragraphs]
        text = make_book(chapters, heading, "A TALE\n\nby Jane Q. Writer", between, width)
        found = [paragraph for paragraph in book_to_prose(text).split("\n") if paragraph != "Next"]
        assert found == expected
        assert " ".join(book_to_prose(text.replace("\n\n", "\n")).split()).count("as it always had.") == len(expected)


ENDS: dict[str, Callable[[int], str]] = {
    "plain": lambda n: "",
    "dots": lambda n: f" .... {17 * n + 3}",
    "numbers": lambda n: f" {17 * n + 3}",
}


# A number beside a number is a table of figures.
@pytest.mark.parametrize(("name", "end"), sorted({*itertools.product(HEADINGS, ENDS)} - {("4", "numbers")}))
def test_a_table_of_contents_goes_and_nothing_else(name: str, end: str) -> None:
    chapters = make_chapters(5)
    expected = [paragraph for paragraphs in chapters for paragraph in paragraphs]
    entries = [HEADINGS[name](number).replace("\n\n", ". ") + ENDS[end](number) for number in range(CHAPTERS)]
    table = "\n".join(["CONTENTS", "", *entries])
    text = make_book(chapters, HEADINGS[name], f"A TALE\n\n{table}", "", 72)
    assert book_to_prose(text).split("\n") == expected
    # A preface stands between the table and the first chapter, or before the table.
    preface = "\n\n".join(textwrap.fill(paragraph, 72) for paragraph in chapters[LONG])
    for front in (f"{table}\n\nPREFACE\n\n{preface}", f"PREFACE\n\n{preface}\n\n{table}"):
        text = make_book(chapters, HEADINGS[name], front, "", 72)
        assert book_to_prose(text).split("\n") == chapters[LONG] + expected


def test_the_number_of_a_chapter_is_no_page_number() -> None:
    paragraphs = make_chapters(1)[0]
    prose = "\n\n".join(textwrap.fill(paragraph, 72) for paragraph in paragraphs)
    text = f"Chapter 1\n\n{prose}\n\nContents\n\nChapter 2\n\n{prose}\n\nChapter 3\n\n{prose}\n"
    assert book_to_prose(text).split("\n") == paragraphs * 3


@pytest.mark.parametrize(
    "opening",
    [
        "*** START OF THE PROJECT GUTENBERG EBOOK A TALE\n\n{prose}\n\n***\n\n",  # no stars at the end of the line
        "*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***\nProduced by A. Volunteer\n{lines}\n",  # no empty line
        "[Illustration: A street\n\n{prose}\n\n[1]\n\n",  # no bracket at its end
    ],
)
def test_a_frame_without_its_end_takes_no_prose_away(opening: str) -> None:
    paragraphs = [paragraph for chapter in make_chapters(2) for paragraph in chapter]
    lines = "\n".join(paragraphs)
    text = opening.format(prose=lines.replace("\n", "\n\n"), lines=lines) + "THE END\n"
    assert book_to_prose(text).count("as it always had.") == len(paragraphs)
