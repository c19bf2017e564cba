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
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_NUMERAL = (
    r"(?:[ivxlcdm]+|\d+"
    r"|(?:the )?(?:[a-z]+(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tieth|teenth)|first|second|third"
    r"|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|last)|the [a-z]+-(?:first|second|third|[a-z]+th)"
    rf"|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[ -](?:{_ONES}))?|{_ONES}|ten|eleven|twelve"
    r"|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen)"
)
_ROMAN = r"(?:C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})|x{0,3}(?:ix|iv|v?i{0,3}))"
# "Chapter the First. In which ..."; a word in lower case after it, as in "Letter 5, which I sent", makes it prose.
_NUMBERED = re.compile(
    r"(?i:(?:the )?(?:chapter|chap\.|book|part|volume|vol\.|act|scene|canto|stave|letter|section)"
    rf"\s+(?:[0-9]+\.)?{_NUMERAL})(?![\w'’])(?:[.,:;—–-]+\s*(?:[^a-z\s].*)?)?"
    r"|(?:CHAPTER|BOOK|PART|VOLUME|LETTER)\s+[A-Z0-9]+\b[.,:;—–-].*"
    r"|(?i:(?:first|second|third|fourth|fifth)\s(?:act|scene|part|book|volume))(?:[.:;—–-].*)?"
)
_NAMED = re.compile(
    r"(?:prologue|epilogue|preface|introduction|foreword|afterword|contents|table of contents|appendix|the end|finis"
    r"|dedication|prelude|finale)\.?",
    re.IGNORECASE,
)
_MARKS = re.compile(rf"(?=[^\s.]){_ROMAN}\.?|\d{{1,3}}\.?|[-*=_~ .·]+")
# "MY DEAR SIR,": the first words of a letter.
_SALUTATION = re.compile(
    r"\b(?:DEARE?|DEAREST|SIR|MADAM|MONSIEUR|HONOURED|LORD|LADY|FATHER|MOTHER|BROTHER|SISTER|MRS?|MISS|FRIENDS?"
    r"|GENTLEMEN|LADIES|GOODMAN|FARMER|CHILD|ESQUIRE)\b.*[,:;—–-]$"
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
# "The Tenant of Wildfell Hall": every word of weight begins with a capital, and nothing ends.
_SMALL_WORD = r"[a-z]{1,3}|from|with|upon|into"
_TITLE = re.compile(rf"[\"'“‘(]?[A-Z][\w'’.-]*(?:[,:]? (?:[\"'“‘(]?[A-Z][\w'’-]*|{_SMALL_WORD}))*")
_HEADING_CHARACTERS = 80
_TITLE_CHARACTERS = 60
_CONTENTS_CHARACTERS = 30_000
_ENTRY_END = re.compile(r"(?:[\s.·_-]*\s\d+|[\s.·_-]{2,}(?:\d+|[ivxl]+)?|\.)\s*$")  # leaders and the number of a page
_LONG_LINE = 150  # characters; hard-wrapped text stays below
_SHORT_SHARE = 0.85  # of the wrap width: a line that ends a sentence below it ends its paragraph as well


def book_to_prose(text: str) -> str:
    """The paragraphs of a book separated by one "\n"; hard-wrapped lines are joined.

    `text` has "\n" line ends. Licence, credits, contents, list of persons, headings and rules are left out.
    """
    text = drop_persons(drop_contents(drop_gutenberg(text)))
    text = _ILLUSTRATION.sub("", text)
    text = _EMPHASIS.sub(r"\1", text)
    paragraphs: list[str] = []
    after_heading = True
    for lines in split_paragraphs(text):
        after_heading = is_heading(lines, after_heading)
        if not after_heading:
            paragraphs.append(" ".join(" ".join(lines).split()))
    return "\n".join(filter(None, paragraphs))


def drop_gutenberg(text: str) -> str:
    """Text without Project Gutenberg's header and footer, of the 1990s ("small print") or later."""
    starts = list(_GUTENBERG_START.finditer(text, 0, min(len(text), 60_000)))
    if starts:
        text = _GUTENBERG_CREDIT.sub("", text[starts[-1].end() :])
    end = _GUTENBERG_END.search(text, len(text) // 2)
    return text[: end.start()] if end else text


def drop_contents(text: str) -> str:
    """Text without a table of contents, which ends where its first entry stands again, as a heading.

    Where it never does, the short lines after "Contents" are the table, up to the first line of text.
    """
    match = _CONTENTS.search(text, 0, min(len(text), 20_000))
    if not match:
        return text
    lines = list(re.finditer(r"[^\n]*\n|[^\n]+$|\Z", text[match.end() : match.end() + _CONTENTS_CHARACTERS]))
    entries = [_entry(line[0]) for line in lines]
    first = next((entry for entry in entries if entry), "")
    again = re.escape(first)
    if _NUMBERED.match(first) and (key := re.match(r"\S+\s+\w+", first)):  # the title may be missing there
        again = re.escape(key[0]) + r"(?:\W.*)?"
    start = entries.index(first) + 1
    for line, entry in zip(lines[start:], entries[start:]):
        if first and re.fullmatch(again, entry):
            return f"{text[: match.start()]}\n\n{text[match.end() + line.start() :]}"
    for line in lines:
        entry = line[0].strip()
        if len(entry) > _TITLE_CHARACTERS and not re.search(r"\d+$", entry):
            return f"{text[: match.start()]}\n\n{text[match.end() + line.start() :]}"
    return text


def _entry(line: str) -> str:
    """A line of a table of contents without the number of its page, lower case."""
    line = line.strip()
    return (line if _MARKS.fullmatch(line) else _ENTRY_END.sub("", line)).lower()


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

    An empty line ends one. In a file that has hardly any, a short line with the end of a sentence does, and a heading
    stands alone that does not begin within a sentence; where lines are long, each is a paragraph.
    """
    lines = [line.strip() for line in text.split("\n")]
    filled = sorted(len(line) for line in lines if line)
    if not filled:
        return
    width = filled[int(len(filled) * 0.95)]
    has_gaps = len(lines) - len(filled) > len(filled) / 50
    is_wrapped = filled[len(filled) // 2] < _LONG_LINE
    current: list[str] = []
    before = ""  # the line of text before, "" after a heading
    for line in lines:
        if not line:
            if current:
                yield current
            current = []
            continue
        if not has_gaps and is_wrapped and _can_be_heading(line, before, width) and is_heading([line], not before):
            if current:
                yield current
            yield [line]
            current = []
            before = ""
            continue
        before = line
        current.append(line)
        if not is_wrapped or (not has_gaps and len(line) < _SHORT_SHARE * width and _ENDS_WELL.search(line)):
            yield current
            current = []
    if current:
        yield current


def _can_be_heading(line: str, before: str, width: int) -> bool:
    """Whether `line` may be one by the line before it, in a file without empty ones: not within a sentence."""
    if before.isupper():  # an inscription, line by line: only a numbered heading ends it
        return _NUMBERED.fullmatch(line) is not None
    return not before or len(before) < width // 2 or _SENTENCE_END.search(before) is not None


def is_heading(lines: list[str], after_heading: bool = False) -> bool:
    """Whether a paragraph is a heading, a rule or a title instead of text.

    after_heading: it follows one, or begins the book; there a line in capitals is a title however it ends.
    """
    text = " ".join(lines)
    if len(text) > _HEADING_CHARACTERS or len(lines) > 3:
        return False
    if _MARKS.fullmatch(text) or (not text[0].islower() and (_NUMBERED.fullmatch(text) or _NAMED.fullmatch(text))):
        return True
    if text[0] in "\"'“‘" or _SALUTATION.search(text):
        return False
    if text.isupper():
        return after_heading or (len(lines) == 1 and not _ENDS_WELL.search(text) and text[-1] not in ",;:")
    if not after_heading or len(lines) > 1:
        return False
    return bool(_BYLINE.fullmatch(text) or (len(text) < _TITLE_CHARACTERS and _TITLE.fullmatch(text)))
