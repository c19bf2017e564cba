"""Plain text files, one document each: BookCorpus, Project Gutenberg and the like. They may be compressed.

Of books, headings, licences and tables of contents are left out. Of other texts, nothing is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from common.errors import UserError
from data_prep.corpus.documents import Document, spelled
from data_prep.sources import Skipped, Source, find_files
from data_prep.sources.encodings import NotDecodedError, decode
from data_prep.sources.opening import COMPRESSED, DAMAGE, MAX_TEXT_BYTES, is_of_the_system, open_input

_TEXT_FILE = re.compile(rf".\.(?:txt|text){COMPRESSED}", re.IGNORECASE)

_NAMES = r"html|head|title|meta|link|body|div|p|h[1-6]|br|span|table|center|font|article|tei[\w.:]*|text|mediawiki|page"
_TAG = rf"<(?:!--|\?xml\b|!doctype\b|(?:{_NAMES})(?=\s*/?>|\s+[\w:.-]+\s*=))"
_MARKUP = re.compile(rf'\s*(?:{_TAG}|\{{\s*"|\[\s*["{{])', re.IGNORECASE)

# Project Gutenberg's texts before and after a book, whose wording has changed since 1991. The licence, "small print",
# stood before the book until 2002, and after it until 2004.
_GUTENBERG_MARK = re.compile(
    r"^[^\S\n]*\*{2,}\s*(?P<start>START) OF (?:THE|THIS) PROJECT GUTENBERG(?:.{0,300}?\*{2,})?[^\n]*$"
    r"|^[^\n]*?(?:\*END\*?|END\*)\s*THE (?P<small>SMALL) PRINT[^\n]*$"
    r"|^[^\S\n]*\**[^\S\n]*(?:(?:This is )?the )?End of (?:the |this )?(?:Project Gutenberg|E-?text\b|EBook\b)[^\n]*$"
    r"|^[^\S\n]*Ende dieses Projekt Gutenberg[^\n]*$",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_MAX_LICENCE_CHARACTERS = 60_000  # of what is before a book or after it
_MADE = r"(?:produced|prepared|transcribed|scanned|typed|proofed|proofread|digitized|created)"
_TRANSCRIBER = r"Transcriber['’]?s?['’]?\ notes?\b"
# Paragraphs between the mark and the book: who made the file, and what else there is of it.
_GUTENBERG_CREDIT = re.compile(
    rf"""\s*+(?:
    (?:(?:(?:this\ )?(?:e-?text|ebook|file|book)\ (?:was\ )?)?{_MADE}(?:\ and\ \w+)?\b(?:[ ]by|[ ]from|:|[^\n]*\ by\b)
      |(?:HTML\ version|additional\ (?:proofing|editing)|proofreading)\ by\b
      |note:\ (?:Project\ Gutenberg|images\ of|the\ original\b)
      |(?:see|images\ of\ the\ original)\ [^\n]*(?:\n\s*)?\(?https?://
      |\[?(?:this\ file\ was\ first\ posted|most\ recently\ updated)
      |\W{{0,9}}{_TRANSCRIBER}[^\n]*\w
    )[^\n]*(?:\n[^\S\n]*\S[^\n]*){{0,15}}
    |\W{{0,9}}{_TRANSCRIBER}.{{0,3000}}?(?=\n[^\S\n]*\n[^\S\n]*\n)
    )(?=\s*?\n[^\S\n]*\n|\s*\Z)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_TRANSCRIBERS_REMARK = re.compile(rf"\[{_TRANSCRIBER}[^\[\]]{{0,2000}}\]", re.IGNORECASE)
_TRANSCRIBERS_END = re.compile(rf"\n[^\S\n]*\n[^\w\n]*{_TRANSCRIBER}\W*\n", re.IGNORECASE)
_MAX_REMARKS_CHARACTERS = 10_000
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_NUMERAL = (
    r"(?:[ivxlcdm]+|\d+"
    r"|(?:the )?(?:[a-z]+(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tieth|teenth)|first|second|third"
    r"|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|last)|the [a-z]+-(?:first|second|third|[a-z]+th)"
    rf"|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[ -](?:{_ONES}))?|{_ONES}|ten|eleven|twelve"
    r"|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen)"
)
_ROMAN = r"(?:C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})|x{0,3}(?:ix|iv|v?i{0,3}))"
# "Chapter the First. In which ..." is a heading. Followed by lower case ("Letter 5, which I sent") it is prose.
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
_NUMERAL_OR_RULE = re.compile(rf"(?=[^\s.]){_ROMAN}\.?|\d{{1,3}}\.?|[-*=_~ .·]+")
# "MY DEAR SIR,": the first words of a letter.
_SALUTATION = re.compile(
    r"\b(?:DEARE?|DEAREST|SIR|MADAM|MONSIEUR|HONOURED|LORD|LADY|FATHER|MOTHER|BROTHER|SISTER|MRS?|MISS|FRIENDS?"
    r"|GENTLEMEN|LADIES|GOODMAN|FARMER|CHILD|ESQUIRE)\b.*[,:;—–-]$"
)
_PERSONS = re.compile(
    r"^\s*(?:dramatis person(?:ae|æ)|persons? represented|persons of the (?:play|drama)|characters of the play)\b",
    re.I | re.M,
)
_FIRST_ACT = re.compile(
    r"^\s*(?:act|scene)\s+(?:i|1|first|one)\b[^\n]*$|^\s*(?:the )?(?:prologue|induction)\b[^\n]*$|^\s*first act\b",
    re.I | re.M,
)
_CONTENTS = re.compile(
    r"^[^\S\n]*(?:(?:Table of )?Contents|(?:TABLE OF )?CONTENTS|Table Of Contents)[.:]?[^\S\n]*$", re.MULTILINE
)
_ILLUSTRATION = re.compile(r"\[(?:illustration|frontispiece|picture|image|map)\b[^\]]{0,600}\]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?:;—-][\"')\]”’_]*$")
_ENDS_WELL = re.compile(r"[.!?][\"')\]”’_]*$")
_EMPHASIS = re.compile(r"(?<!\w)_([^_\n]{1,300})_(?!\w)")
_BYLINE = re.compile(r"[Bb][Yy]:? (?:[A-Z][\w.'-]*\s?){1,5}(?:\(\d{4}\))?")
# "The Tenant of Wildfell Hall": all words but small ones begin with a capital, and there is no full stop.
_SMALL_WORD = r"[a-z]{1,3}|from|with|upon|into"
_TITLE = re.compile(rf"[\"'“‘(]?[A-Z][\w'’.-]*(?:[,:]? (?:[\"'“‘(]?[A-Z][\w'’-]*|{_SMALL_WORD}))*")
_MAX_HEADING_CHARACTERS = 80
_MAX_TITLE_CHARACTERS = 60
_MAX_CONTENTS_CHARACTERS = 30_000
_NUMBERED_ENTRY = re.compile(
    rf"(?:{_NUMBERED.pattern})$|(?i:chapter|chap\.|book|part|volume|letter)\s+[\divxlcIVXLC]+\b"
    rf"|(?=[^\s.]){_ROMAN}(?:[.):]|\s|\.?--)\s*[\"'“‘(A-Z]"
    rf"|(?=[^\s.]){_ROMAN}\.?$|\d{{1,3}}\.?$|\d{{1,3}}(?:[.)]|\s)\s*[\"'“‘(A-Z]"
)
_PAGE_NUMBER = re.compile(r"(?:\s{2,}|[.·_]{2,}\s*|(?<=[.·_])\s+)(?:\d{1,4}|[ivxl]+)$")
_SOFT_HYPHEN = "\u00ad"
_LETTERS = r"[^\W\d_]{1,40}"
_WORD = re.compile(_LETTERS)
_WORD_BEFORE = re.compile(rf"{_LETTERS}\Z")
# A hyphen behind a letter and before a word, at a line's end and elsewhere. The hyphen comes first, for speed.
_BREAK = re.compile(rf"([-‐{_SOFT_HYPHEN}])(?<=[^\W\d_].)[^\S\n]*\n[^\S\n]*(?=({_LETTERS}))")
_HYPHEN = re.compile(rf"[-‐](?<=[^\W\d_].)(?=({_LETTERS}))")
_LONG_LINE = 150  # characters; hard-wrapped lines are shorter
_SHORT_SHARE = 0.85  # of the wrap width; a shorter line that ends a sentence also ends its paragraph


class Books(Source):
    """A `Source`: the .txt files below directories, or single files. Each is read into memory whole.

    A work unit is a list of (path, id): the id of a book is its path relative to the --input that contains it.
    """

    encoding: str | None = None  # of all files; None finds that of each

    def __init__(self, paths: Sequence[Path], unit_bytes: int, to_prose: Callable[[str], str] | None = None) -> None:
        """Groups files into work units of about `unit_bytes`. UserError: a path is missing or contains no text file."""
        super().__init__()
        self._unit_bytes, self._to_prose = unit_bytes, to_prose or book_to_prose
        self.plan([book for path in paths for book in find_files(path, _TEXT_FILE.search, ".txt file")])

    def plan_file(self, path: Path, name: str, size: int) -> None:
        """Adds a book to the last work unit, or to a new one."""
        if size > MAX_TEXT_BYTES:
            remedy = 'split it into one file per book, or make it lines of {"text": ...} for --source jsonl'
            raise UserError(f"{path} has {size >> 20} MB, more than one book; {remedy}")
        self.add_part((path, name), size, self._unit_bytes)

    def read(self, unit: list[tuple[Path, str]]) -> Iterator[Document | Skipped]:
        """Yields one document for each file."""
        for path, book_id in unit:
            try:
                with open_input(path) as file:
                    content = file.read(MAX_TEXT_BYTES + 1)
            except DAMAGE as error:
                if is_of_the_system(error):
                    raise
                yield Skipped(book_id, "damaged")
                continue
            self.consumed += len(content)
            prose, reason = self._prose_of(content)
            title = spelled(Path(re.sub(COMPRESSED, "", path.name, flags=re.IGNORECASE)).stem)
            yield Document(book_id, title, prose) if prose else Skipped(book_id, reason)

    def _prose_of(self, content: bytes) -> tuple[str, str]:
        """Returns the prose of a file, or "" and why there is none."""
        if len(content) > MAX_TEXT_BYTES:
            return "", "too long"
        try:
            text = decode(content, self.language, self.encoding)
        except NotDecodedError as error:
            return "", str(error)
        return ("", "JSON, HTML or XML") if _MARKUP.match(text) else (self._to_prose(text), "no prose")


def book_to_prose(text: str) -> str:
    """Returns the paragraphs of a book, separated by one "\n"; hard-wrapped lines are joined.

    Licence, credits, contents, list of persons, headings and rules are left out. Lines of `text` end with "\n".
    """
    text = drop_persons(drop_contents(drop_gutenberg(_TRANSCRIBERS_REMARK.sub("", text))))
    text = _ILLUSTRATION.sub("", text)
    text = _EMPHASIS.sub(r"\1", text)
    kept, after_heading = list[list[str]](), True
    for lines in split_paragraphs(text):
        after_heading = is_heading(lines, after_heading)
        if not after_heading:
            kept.append(lines)
    words = _count_broken_words(text)
    return "\n".join(filter(None, (_join_lines(lines, words) for lines in kept)))


def text_to_prose(text: str) -> str:
    """Returns all paragraphs of a text, separated by one "\n"; hard-wrapped lines are joined."""
    words = _count_broken_words(text)
    return "\n".join(_join_lines(lines, words) for lines in split_paragraphs(text))


def _count_broken_words(text: str) -> Counter[str]:
    """Counts how often each word that is broken at a line's end stands elsewhere: "today", "to-day"."""
    text = text.lower()
    breaks = [(_word_before(match), match[2]) for match in _BREAK.finditer(text)]
    broken = {f"{before}{hyphen}{after}" for before, after in breaks for hyphen in ("", "-")}
    words: Counter[str] = Counter()
    if broken:
        for line in text.split("\n"):
            words.update(filter(broken.__contains__, _WORD.findall(line)))
        hyphenated = (f"{_word_before(match)}-{match[1]}" for match in _HYPHEN.finditer(text))
        words.update(filter(broken.__contains__, hyphenated))
    return words


def _word_before(hyphen: re.Match[str]) -> str:
    """Returns the letters that end where a hyphen stands; there is at least one."""
    end = hyphen.start()
    return str(_WORD_BEFORE.findall(hyphen.string, max(0, end - 40), end)[0])


def _join_lines(lines: list[str], words: Counter[str]) -> str:
    """Joins the lines of a paragraph. words: how often the words that are broken at their ends stand elsewhere."""

    def mend(match: re.Match[str]) -> str:
        (hyphen, after), before = match.groups(), _word_before(match)
        joined, hyphenated = words[f"{before}{after}".lower()], words[f"{before}-{after}".lower()]
        if hyphen == _SOFT_HYPHEN or joined > hyphenated:
            return ""
        return hyphen if hyphenated else match[0]

    return " ".join(_BREAK.sub(mend, "\n".join(lines)).split())


def drop_gutenberg(text: str) -> str:
    """Removes Project Gutenberg's licence, credits and remarks, before, after and between the works of a file."""
    marks = list(_GUTENBERG_MARK.finditer(text))
    if not marks:
        return text
    last_end = max((mark.start() for mark in marks if not mark["start"] and not mark["small"]), default=-1)
    works, begin, is_inside = [], 0, True
    for mark in marks:
        begins = mark["start"] or mark["small"]
        if mark["small"] and not is_inside and mark.start() > last_end:
            continue  # the licence of the last work
        if mark.start() - begin > _MAX_LICENCE_CHARACTERS or (is_inside and not begins):
            works.append(text[begin : mark.start()])
        begin, is_inside = mark.end(), bool(begins)
    if is_inside or len(text) - begin > _MAX_LICENCE_CHARACTERS:
        works.append(text[begin:])
    return "\n\n".join(map(_drop_credits, works))


def _drop_credits(work: str) -> str:
    """Removes what those who made the file say about it, at the beginning and the end of a work."""
    while credit := _GUTENBERG_CREDIT.match(work):
        work = work[credit.end() :]
    remarks = _TRANSCRIBERS_END.search(work, max(0, len(work) - _MAX_REMARKS_CHARACTERS))
    return work[: remarks.start()] if remarks else work


def drop_contents(text: str) -> str:
    """Removes a table of contents, with the line "Contents" above it.

    The table ends with the last line that has the form of an entry, which headings have as well. "Contents" above
    anything else, such as a link between two chapters, is an ordinary heading.
    """
    for title in _CONTENTS.finditer(text, 0, min(len(text), 20_000)):
        end = title.end()
        for match in re.finditer(r"[^\n]*\S[^\n]*", text[title.end() : title.end() + _MAX_CONTENTS_CHARACTERS]):
            if not _is_entry(match[0].strip()):
                break
            end = title.end() + match.end()
        if end > title.end():
            return f"{text[: title.start()]}\n\n{text[end:]}"
    return text


def _is_entry(line: str) -> bool:
    """Tells whether a line has the form of an entry: a number, dots before a page number, or the form of a title."""
    if _NUMBERED_ENTRY.match(line) or _PAGE_NUMBER.search(line):
        return True
    if line[-1] in ",;:" or len(line) > _MAX_HEADING_CHARACTERS:
        return False
    line = re.sub(r"\s+\d{1,4}$", "", line)
    return line.isupper() or _TITLE.fullmatch(line.strip("\"'“”‘’. ")) is not None


def drop_persons(text: str) -> str:
    """Removes a play's list of persons, up to the first act."""
    match = _PERSONS.search(text, 0, 3000)
    act = _FIRST_ACT.search(text, match.end(), match.end() + 8000) if match else None
    return text[: match.start()] + text[act.start() :] if match and act else text


def split_paragraphs(text: str) -> Iterator[list[str]]:
    """Yields the paragraphs as lists of lines.

    An empty line ends a paragraph. A file with hardly any empty lines is of one of two kinds. If its lines are long,
    each is a paragraph. If they are wrapped, a short line that ends a sentence ends its paragraph, and a heading is a
    paragraph of its own unless it begins inside a sentence.
    """
    lines = [line.strip() for line in text.split("\n")]
    filled = sorted(len(line) for line in lines if line)
    if not filled:
        return
    width = filled[int(len(filled) * 0.95)]
    has_gaps = len(lines) - len(filled) > len(filled) / 50
    is_wrapped = filled[len(filled) // 2] < _LONG_LINE
    current: list[str] = []
    before = ""  # the previous line of text; "" after a heading
    for line in [*lines, ""]:
        is_apart = line and not has_gaps and is_wrapped and _can_be_heading(line, before, width)
        is_apart = is_apart and is_heading([line], not before)
        if current and (not line or is_apart):
            yield current
            current = []
        if line:
            current.append(line)
            before = "" if is_apart else line
        ends = is_apart or (not has_gaps and len(line) < _SHORT_SHARE * width and _ENDS_WELL.search(line))
        if current and (ends or not is_wrapped):
            yield current
            current = []


def _can_be_heading(line: str, before: str, width: int) -> bool:
    """Tells whether `line` can be a heading in a file without empty lines: it does not begin inside a sentence."""
    if before.isupper():  # inside an inscription, only a numbered line is a heading
        return _NUMBERED.fullmatch(line) is not None
    return not before or len(before) < width // 2 or _SENTENCE_END.search(before) is not None


def is_heading(lines: list[str], after_heading: bool = False) -> bool:
    """Tells whether a paragraph is a heading, a rule or a title.

    after_heading: whether it follows a heading or begins the book. There, a line in capitals is a title even if it ends
    like a sentence.
    """
    text = " ".join(lines)
    if len(text) > _MAX_HEADING_CHARACTERS or len(lines) > 3:
        return False
    if _NUMERAL_OR_RULE.fullmatch(text) or (
        not text[0].islower() and (_NUMBERED.fullmatch(text) or _NAMED.fullmatch(text))
    ):
        return True
    if text[0] in "\"'“‘" or _SALUTATION.search(text):
        return False
    if text.isupper():
        return after_heading or (len(lines) == 1 and not _ENDS_WELL.search(text) and text[-1] not in ",;:")
    if not after_heading or len(lines) > 1:
        return False
    is_title = len(text) < _MAX_TITLE_CHARACTERS and text[-1] != "-" and _TITLE.fullmatch(text)
    return bool(_BYLINE.fullmatch(text) or is_title)
