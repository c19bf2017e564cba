"""Text files of books, those of Project Gutenberg as well: every form gives the same paragraphs and nothing else.

Whole books, which are generated, keep their prose whatever their headings, tables and navigation lines are.
"""

import gzip
import itertools
import random
import textwrap
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.corpus.documents import Document
from data_prep.sources import Skipped, books
from data_prep.sources.books import Books, book_to_prose, is_heading, text_to_prose
from data_prep.sources.encodings import decode
from tests.data_prep.corpora import read_all

BOOKS = tomllib.loads(Path(__file__).with_name("books.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("text", "prose"), BOOKS["prose"])
def test_only_the_prose_is_left(text: str, prose: str) -> None:
    assert book_to_prose(text) == prose


@pytest.mark.parametrize(("broken", "elsewhere", "mended"), BOOKS["broken"])
def test_a_word_broken_at_a_line_end_is_joined_if_it_stands_elsewhere(broken: str, elsewhere: str, mended: str) -> None:
    text = f"He went on with {broken} of it, and so on and on.\n\nHe said it then. {elsewhere}\n"
    expected = f"He went on with {mended} of it, and so on and on."
    assert book_to_prose(text).split("\n")[0] == expected
    assert text_to_prose(text).split("\n")[0] == expected


def test_broken_words_take_linear_time() -> None:
    begin = time.process_time()
    for piece in ("a-\n", "a-", "a", "- \n", "ab-" + " " * 50):
        text_to_prose(piece * (200_000 // len(piece)))
    assert time.process_time() - begin < 20


def test_paragraphs_without_empty_lines_between() -> None:
    wide = "and the words went on to fill the whole of the line up to its end"
    text = "\n".join(["CHAPTER I", wide, wide, "until it stopped.", wide, "- twice.", "CHAPTER II", wide, "So."])
    full, line = f"{wide[:-1]}.", ("It is a sentence of a paragraph on one line. " * 8).strip()
    assert book_to_prose(f"{line}\n{line}\n") == f"{line}\n{line}"
    assert book_to_prose("\n".join([wide, full, "CHAPTER II", full])).split("\n") == [f"{wide} {full}", full]
    assert book_to_prose(text).split("\n") == [f"{wide} {wide} until it stopped.", f"{wide} - twice.", f"{wide} So."]


WORDS = ["went", "civil", "did", "mill", "house", "café", "of", "a"]
WORDS += ["i", "mix", "dim", "third", "night", "vivid", "chapter"]
PARAGRAPHS = st.lists(st.lists(st.sampled_from(WORDS), min_size=6, max_size=60), min_size=2, max_size=8)


@given(
    PARAGRAPHS, st.integers(40, 90), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["utf-8-sig", "latin-1"])
)
def test_no_word_of_wrapped_text_is_lost(paragraphs: list, width: int, newline: str, encoding: str) -> None:
    expected = [f"{' '.join(words).capitalize()}." for words in paragraphs]
    wrapped = "\n\n".join(textwrap.fill(paragraph, width) for paragraph in expected)
    text = decode(wrapped.replace("\n", newline).encode(encoding), encoding=None if "utf" in encoding else encoding)
    assert book_to_prose(text).split("\n") == expected


@pytest.mark.parametrize("text", BOOKS["no_headings"])
def test_no_headings(text: str) -> None:
    assert not is_heading([text])


def test_a_line_within_a_sentence_is_no_heading() -> None:
    wide = "and the words went on to fill the whole of the line up to its end"
    lines = ["CHAPTER I", "I AM BORN, AND", "WHAT CAME OF IT", wide, "third act of my play.", wide, "125", f"{wide}."]
    assert book_to_prose("\n".join(lines)).split("\n") == [f"{wide} third act of my play.", f"{wide} 125 {wide}."]
    stone = ["It read so:", "HERE LIES,", "THE BODY OF", "A GOOD MAN.", "LONDON", "SAW HIS BIRTH, AND", "HIS END."]
    paragraphs = [" ".join([wide, wide, *stone[:4]]), " ".join(stone[4:]), wide]
    assert book_to_prose("\n".join([wide, wide, *stone, "CHAPTER II", wide])).split("\n") == paragraphs


def test_a_tree_of_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.TXT").write_text("It is two.")
    (tmp_path / "a.txt").write_text("It is one.")
    (tmp_path / "c.txt").write_bytes(b"\0\1\2")
    (tmp_path / "d.txt").write_text("CHAPTER I\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    source = Books([tmp_path], unit_bytes=1)
    assert len(source.units) == 4
    assert read_all(source) == [
        Document("a.txt", "a", "It is one."),
        Document("b/two.TXT", "two", "It is two."),
        Skipped("c.txt", "not a text file"),
        Skipped("d.txt", "no prose"),
    ]
    assert source.consumed == sum(source.sizes) == 10 + 10 + 3 + 10
    assert [len(unit) for unit in Books([tmp_path], unit_bytes=20).units] == [2, 2]


@pytest.mark.parametrize(("text", "reason"), BOOKS["markup"])
def test_what_is_no_prose_is_skipped(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UserError, match=r"holds no \.txt file"):
        Books([tmp_path], 1 << 20)
    (tmp_path / "novel").write_text(text)
    source = Books([tmp_path / "novel"], 1 << 20)
    (found,) = read_all(source)
    assert found == Skipped("novel", reason) if reason else isinstance(found, Document)


def test_the_plays_keep_their_text(sample_corpus: Path) -> None:
    source = Books([sample_corpus / "books"], 16 << 20)
    plays = {item.id: item.text for item in read_all(source) if isinstance(item, Document)}
    assert len(plays) == 37
    assert sum(map(len, plays.values())) > 0.95 * sum(source.sizes)
    hamlet = plays["hamlet.txt"]
    assert hamlet.startswith("[Francisco at his post. Enter to him Bernardo.]\nBer. Who's there?\nFran. Nay, answer me")
    assert "To be, or not to be,--that is the question:-- Whether 'tis nobler in the mind to suffer" in hamlet
    assert not any("Dramatis Person" in text or "PERSONS REPRESENTED" in text for text in plays.values())


def test_compressed_books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other compressions are those of records."""
    content = b"CHAPTER I\n\nIt is told.\n"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(content * 10_000)[:-9])
    monkeypatch.setattr(books, "MAX_TEXT_BYTES", 1000)
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(content * 50))
    source, long = Books([tmp_path], 1 << 20), [Skipped(f"{name}.txt.gz", "too long") for name in "bc"]
    assert read_all(source) == [Document("a.txt.gz", "a", "It is told."), *long]
    monkeypatch.undo()
    assert read_all(source)[1] == Skipped("b.txt.gz", "damaged")


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


REMARKS = "\n\nOn page 5 a letter was changed.\n\nOn page 6 it was another."
NOTES = ["Transcriber's Note", "TRANSCRIBER'S NOTES:", "Transcriber’s note"]
AROUND = [(block, "") for block in (*BOOKS["credits"], "\n\n".join(BOOKS["credits"]))]
AROUND += [("", f"\n{title}{REMARKS}") for title in NOTES]


@pytest.mark.parametrize(("before", "after"), AROUND)
def test_credits_before_a_book_and_remarks_after_it_go(before: str, after: str) -> None:
    text = f"{HEAD}\n{START}\n\n{before}\n\n\n{LONG}\n\n{after}\n\n{END}\n"
    assert book_to_prose(text).split("\n") == LONG.split("\n\n")


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


CHAPTERS = 14
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV")
ORDINAL = (
    *("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth", "Eleventh"),
    *("Twelfth", "Thirteenth", "Fourteenth"),
)
HEADINGS = [
    *("CHAPTER {roman}", "Chapter {n}", "Chapter {n}.", "Chapter {n}: {title}", "CHAPTER {roman}. {TITLE}"),
    *("Chapter {roman}\n\n{title}", "{roman}", "{roman}. {TITLE}", "{n}", "Book the {ordinal}", "Letter {n}"),
    *("PART THE {ORDINAL}", "ACT {roman}. SCENE I. A wood.", "{TITLE}"),
]
# Chapters of few words; dialogue; lines that end with numbers; short sentences, which look like entries.
SENTENCES = (
    "He went down to the harbour before the others were awake, and waited there for the boat.",
    *("“Well?” said he.", "'No,' she answered.", "It was the year 1848", "Mr. Brown was silent."),
    *("The Duke of York had told him that there were 12", "of them, and that was all."),
    "I. for one, did not believe a word of it; nor did anybody else who had been there at the time.",
    "Book the room, act as you will, and part as friends.",
    *("“Chapter 2,” he read out.", "The contents of the box were gone.", "Nobody knew why."),
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


def numbered(form: str, n: int) -> str:
    """Returns a heading or the end of a line for chapter `n`, from 0."""
    ordinal, title = ORDINAL[n], f"The {ORDINAL[n]} Day of a Long Journey"
    capitals = {"TITLE": title.upper(), "ORDINAL": ordinal.upper()}
    return form.format(n=n + 1, roman=ROMAN[n], ordinal=ordinal, title=title, page=17 * n + 3, **capitals)


def make_book(chapters: list[list[str]], heading: str, front: str, between: str, width: int) -> str:
    """Returns the text of a book: `front`, then the chapters, each below its heading and above `between`."""
    parts = [front]
    for number, paragraphs in enumerate(chapters):
        parts += [numbered(heading, number), *(textwrap.fill(paragraph, width) for paragraph in paragraphs), between]
    return "\n\n".join(part for part in parts if part) + "\n"


@pytest.mark.parametrize("between", ["", "CONTENTS", "Contents\n\nNext", "Table of Contents"])
@pytest.mark.parametrize("heading", HEADINGS)
def test_a_book_keeps_every_paragraph(heading: str, between: str) -> None:
    for seed, width in ((0, 45), (1, 72)):
        chapters = make_chapters(seed)
        expected = [paragraph for paragraphs in chapters for paragraph in paragraphs]
        text = make_book(chapters, heading, "A TALE\n\nby Jane Q. Writer", between, width)
        found = [paragraph for paragraph in book_to_prose(text).split("\n") if paragraph != "Next"]
        assert found == expected
        assert " ".join(book_to_prose(text.replace("\n\n", "\n")).split()).count("as it always had.") == len(expected)


# A number beside a number is a table of figures.
@pytest.mark.parametrize(
    ("heading", "end"), sorted({*itertools.product(HEADINGS, ["", " .... {page}", " {page}"])} - {("{n}", " {page}")})
)
def test_a_table_of_contents_goes_and_nothing_else(heading: str, end: str) -> None:
    chapters = make_chapters(5)
    expected = [paragraph for paragraphs in chapters for paragraph in paragraphs]
    entries = [numbered(heading.replace("\n\n", ". ") + end, number) for number in range(CHAPTERS)]
    table = "\n".join(["CONTENTS", "", *entries])
    text = make_book(chapters, heading, f"A TALE\n\n{table}", "", 72)
    assert book_to_prose(text).split("\n") == expected
    # A preface stands between the table and the first chapter, or before the table.
    long = chapters[2]  # 40 paragraphs
    preface = "\n\n".join(textwrap.fill(paragraph, 72) for paragraph in long)
    for front in (f"{table}\n\nPREFACE\n\n{preface}", f"PREFACE\n\n{preface}\n\n{table}"):
        text = make_book(chapters, heading, front, "", 72)
        assert book_to_prose(text).split("\n") == long + expected


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
