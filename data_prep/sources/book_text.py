"""A book's text file -> its prose: whole paragraphs, without what stands around and between them."""

import re
from collections.abc import Iterator

# What Project Gutenberg put before and after a book, since 1991 in many wordings.
_GUTENBERG_START = re.compile(
    r"^\s*\*{2,}\s*START OF (?:THE|THIS) PROJECT GUTENBERG.*?\*{2,}[^\n]*$"
    r"|^[^\n]*\*END\*?\s*THE SMALL PRINT[^\n]*$|^[^\n]*END\*THE SMALL PRINT![^\n]*$",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_GUTENBERG_END = re.compile(
    r"^\s*\*{2,}\s*END OF (?:THE|THIS) PROJECT GUTENBERG"
    r"|^\s*\**\s*(?:This is the )?End of (?:the |this )?Project Gutenberg(?:'s|\(TM\))?"
    r"|^\s*End of (?:the |this )?(?:Etext|E-text|EBook)\b",
    re.IGNORECASE | re.MULTILINE,
)
_GUTENBERG_CREDIT = re.compile(
    r"\A\s*(?:(?:This )?(?:e-?text|ebook) was (?:prepared|produced)|E-text prepared|Produced by|Transcribed from"
    r"|Prepared by)\b[^\n]*(?:\n[^\n]+)*",
    re.IGNORECASE,
)
_NUMERAL = (
    r"(?:[ivxlcdm]+|\d+"
    r"|(?:the )?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|last)"
    r"|(?:twenty|thirty|forty|fifty|sixty)?[ -]?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty)?)"
)
_HEADING = re.compile(
    r"(?:the )?(?:chapter|chap\.|book|part|volume|vol\.|act|scene|canto|stave|letter|section)"
    rf"\s+{_NUMERAL}\b(?:[.,:;—–-].*)?"
    r"|(?:prologue|epilogue|preface|introduction|foreword|afterword|contents|table of contents|appendix|the end|finis"
    r"|dedication)\.?"
    r"|[ivxlcdm]{1,7}\.?|\d{1,3}\.?|[-*=_~ .·]+"
    r"|(?:first|second|third|fourth|fifth) (?:act|scene|part|book|volume)\b.*",
    re.IGNORECASE,
)
_PERSONS = re.compile(
    r"(?:dramatis person(?:ae|æ)|persons? represented|persons of the (?:play|drama)|characters of the play)\b", re.I
)
_FIRST_ACT = re.compile(
    r"^\s*(?:act|scene)\s+(?:i|1|first|one)\b[^\n]*$|^\s*(?:the )?(?:prologue|induction)\b[^\n]*$|^\s*first act\b",
    re.I | re.M,
)
_CONTENTS = re.compile(r"^\s*(?:table of )?contents[.:]?\s*$", re.IGNORECASE | re.MULTILINE)
_ILLUSTRATION = re.compile(r"\[(?:illustration|frontispiece|picture|image|map)\b[^\]]*\]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?:;—-][\"')\]”’_]*$")
_ENDS_WELL = re.compile(r"[.!?][\"')\]”’_]*$")
_EMPHASIS = re.compile(r"(?<!\w)_([^_\n]{1,300})_(?!\w)")
_BYLINE = re.compile(r"[Bb][Yy]:? (?:[A-Z][\w.'-]*\s?){1,5}(?:\(\d{4}\))?")
_HEADING_CHARACTERS = 80
_LONG_LINE = 150  # characters; hard-wrapped text stays below
_SHORT_SHARE = 0.85  # of the wrap width: a line that ends a sentence below it ends its paragraph as well


def book_to_prose(text: str) -> str:
    """The paragraphs of a book separated by one "\\n"; hard-wrapped lines are joined.

    `text` has "\\n" line ends. Licence, credits, contents, list of persons, headings and rules are left out.
    """
    text = drop_persons(drop_contents(drop_gutenberg(text)))
    text = _ILLUSTRATION.sub("", text)
    text = _EMPHASIS.sub(r"\1", text)
    paragraphs = (" ".join(" ".join(lines).split()) for lines in split_paragraphs(text) if not is_heading(lines))
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def drop_gutenberg(text: str) -> str:
    """Text without Project Gutenberg's header and footer, of the 1990s ("small print") or later."""
    starts = list(_GUTENBERG_START.finditer(text, 0, min(len(text), 60_000)))
    if starts:
        text = _GUTENBERG_CREDIT.sub("", text[starts[-1].end() :])
    end = _GUTENBERG_END.search(text, len(text) // 2)
    return text[: end.start()] if end else text


def drop_contents(text: str) -> str:
    """Text without a table of contents: the short lines after "Contents", up to the first line of text."""
    match = _CONTENTS.search(text, 0, min(len(text), 20_000))
    if not match:
        return text
    position = match.end()
    for line in re.finditer(r"[^\n]*\n", text[position:]):
        entry = line[0].strip()
        if len(entry) > 60 and not re.search(r"\d+$", entry):
            return text[: match.start()] + text[position + line.start() :]
        if line.start() > 30_000:
            break
    return text


def drop_persons(text: str) -> str:
    """A play without its list of persons, up to the first act."""
    head = text[:3000]
    match = re.search(rf"^\s*{_PERSONS.pattern}", head, re.IGNORECASE | re.MULTILINE)
    if not match:
        return text
    act = _FIRST_ACT.search(text, match.end(), match.end() + 8000)
    return text[: match.start()] + text[act.start() :] if act else text


def split_paragraphs(text: str) -> Iterator[list[str]]:
    """The paragraphs as lists of their lines.

    An empty line ends one. In a file that has hardly any, a short line with the end of a sentence does; where lines are
    long, each is a paragraph.
    """
    lines = [line.strip() for line in text.split("\n")]
    filled = sorted(len(line) for line in lines if line)
    if not filled:
        return
    width = filled[int(len(filled) * 0.95)]
    has_gaps = len(lines) - len(filled) > len(filled) / 50
    is_wrapped = filled[len(filled) // 2] < _LONG_LINE
    current: list[str] = []
    for line in lines:
        if not line:
            if current:
                yield current
            current = []
            continue
        if not has_gaps and is_wrapped and is_heading([line]):
            if current:
                yield current
            yield [line]
            current = []
            continue
        current.append(line)
        if not is_wrapped or (not has_gaps and len(line) < _SHORT_SHARE * width and _ENDS_WELL.search(line)):
            yield current
            current = []
    if current:
        yield current


def is_heading(lines: list[str]) -> bool:
    """Whether a paragraph is a heading, a rule or a title instead of text."""
    if not lines:
        return True
    text = " ".join(lines)
    if len(text) > _HEADING_CHARACTERS or len(lines) > 3:
        return False
    if _HEADING.fullmatch(text):
        return True
    return len(lines) == 1 and (bool(_BYLINE.fullmatch(text)) or (text.isupper() and not _ENDS_WELL.search(text)))
