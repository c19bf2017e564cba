"""Flat text of a page -> its paragraphs: which lines belong together, and which of them say something."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from data_prep.text import split_sentences
from data_prep.wikitext.marks import UNKNOWN, reveal
from data_prep.wikitext.repair import repair

TEXT, INDENTED, ITEM = "text", "indented", "item"
_SENTENCE_END = re.compile(r"[.!?…][\"')\]”’»]*$")
# One sentence ends and another begins; "J. Smith" and "Vol. 2" do not look so.
_INNER_END = re.compile(r"[a-z]{3,}[.!?][\"')\]”’»]* [\"“‘(]?[A-Z]")
_CITATION = re.compile(r"\bISBN\b|\((?:1[89]|20)\d\d\)|\b(?:eds|[Vv]ol|pp)\.|Press\b")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LONG_WORD = re.compile(r"[^\W\d_]{3,}")  # formulas have few of them
_SENTENCE_WORDS = 4  # of a list item
_PARAGRAPH_WORDS = 3
_LONGEST_SENTENCE = 5000  # characters: beyond it, lines are no longer joined to one


@dataclass
class Block:
    """Lines that stand together.

    kind: TEXT; INDENTED, by ":", as quotations, verses and formulas are; or ITEM, of a list. text: cleaned, one line.
    """

    kind: str
    text: str

    @property
    def words(self) -> int:
        """Words of two letters or more."""
        return len(_WORD.findall(self.text))

    @property
    def is_open(self) -> bool:
        """Whether a sentence is still going on at the end."""
        return not _SENTENCE_END.search(self.text)


def paragraphs(text: str) -> list[str]:
    """The paragraphs of flat text.

    Lines up to an empty one are joined; a sentence that an indented formula interrupts goes on after it; list items
    stand for themselves.
    """
    kept: list[str] = []
    lead = ""  # "He said:", too short to stand alone: kept when something follows
    previous = Block(TEXT, "")
    for block in join_sentences(blocks(text)):
        if is_prose(block, after=previous):
            kept += [lead, block.text] if lead else [block.text]
            lead = ""
        else:
            lead = block.text if block.kind == TEXT and block.words and block.text.endswith(":") else ""
        previous = block
    return kept


def blocks(text: str) -> Iterator[Block]:
    """Lines put together, none empty; what tables left behind is dropped."""
    kind, lines = TEXT, list[str]()
    for line in [*text.split("\n"), ""]:
        line = line.strip()
        content = line.lstrip("*#:; ")
        prefix = line[: len(line) - len(content)]
        line_kind = TEXT if not prefix else INDENTED if set(prefix) <= {":", " "} else ITEM
        if lines and (not content or line_kind != kind or kind == ITEM):
            if cleaned := clean(" ".join(lines)):
                yield Block(kind, cleaned)
            lines = []
        if content and not line.startswith(("|", "! ", "!!", "!-", "{|", "----")):
            lines.append(content)
        kind = line_kind


def join_sentences(found: Iterator[Block]) -> Iterator[Block]:
    """Blocks of which an indented one that ends the sentence before it, or only interrupts it, is a part of that one.

    "It is" / ": E = mc^2," / "where m is the mass." become one; a quotation after a colon stays one of its own.
    """
    current: Block | None = None
    for block in found:
        if current is not None and _goes_on(current, block):
            current = Block(current.kind, f"{current.text} {block.text}")
            continue
        if current is not None:
            yield current
        current = block
    if current is not None:
        yield current


def _goes_on(current: Block, block: Block) -> bool:
    if current.kind != TEXT or len(current.text) > _LONGEST_SENTENCE or not current.is_open:
        return False
    if current.words < _PARAGRAPH_WORDS:
        return False
    is_formula = block.words < _PARAGRAPH_WORDS
    if block.kind == INDENTED:
        return is_formula or not current.text.endswith(":")
    return block.kind == TEXT and block.text[0].islower()


def clean(text: str) -> str:
    """One paragraph without marks, with the punctuation mended where something was dropped."""
    text = repair(" ".join(text.split()))
    if UNKNOWN in text:
        text = " ".join(sentence for sentence in split_sentences(text) if UNKNOWN not in sentence)
    return " ".join(reveal(text).split())


def is_prose(block: Block, after: Block) -> bool:
    """Whether a block says something.

    A paragraph ends as a sentence does, or has a few words; an entry of a list has to be or to hold a sentence; what is
    indented may also be the quotation that the block before it leads up to.
    """
    if block.kind != TEXT and block.is_open:
        if len(_LONG_WORD.findall(block.text)) < _SENTENCE_WORDS:
            return False
        if block.kind == INDENTED and after.kind != ITEM:
            return True
        return _INNER_END.search(block.text) is not None and not _CITATION.search(block.text)
    if block.kind == ITEM:
        return block.words >= _SENTENCE_WORDS
    return block.words >= _PARAGRAPH_WORDS or (block.words > 0 and not block.is_open)
