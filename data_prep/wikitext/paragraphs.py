"""Splits the flat text of a page into paragraphs, keeps those that are prose, and repairs their punctuation."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from data_prep.text import ENGLISH, closest
from data_prep.text.sentences import split_sentences
from data_prep.wikitext.markers import PRONUNCIATION, PRONUNCIATION_END, REMOVED, UNKNOWN_AMOUNT, unescape_markup
from data_prep.wikitext.site import read_table
from data_prep.wikitext.templates.arguments import names

TEXT, INDENTED, ITEM = "text", "indented", "item"
_CITATION = re.compile(r"\bISBN\b|\((?:1[89]|20)\d\d\)|\b(?:eds|[Vv]ol|pp)\.|Press\b")
# An entry of a bibliography: "Smith, J. (1990). Title", "Smith, Anna. Title. New York: Norton, 1990", or with a number.
_BIBLIOGRAPHY = re.compile(
    r"\b(?:ISBN|ISSN|OCLC|LCCN)\b|\bdoi:|^[A-Z][\w'’-]+, [A-Z][\w.]*(?:[ ,&]+[A-Z][\w.'’-]*)*[.,]? "
    r"(?:\((?:1[89]|20)\d\d\w?\)|.*\b(?:1[89]|20)\d\d\.$)"
)
_WITHOUT_BLANKS = frozenset(["ja", "zh"])  # between words, and so between lines
_EMPTY_PARENTHESES = re.compile(r" *（[\s、，,；;：:・]*）")
_UNITS = "|".join(map(re.escape, names(read_table("templates.toml")["amounts"]["units"])))
# "mit rund ⌀ Millionen Einwohnern": a number was here.
_LOST_AMOUNT = re.compile(rf"(?<=[^\W\d][ \u00a0]){REMOVED}(?=[ \u00a0]+(?:{_UNITS})\b)")
_MIN_SENTENCE_WORDS = 4  # in a list item
_MIN_PARAGRAPH_WORDS = 3
_MAX_END = 20  # characters of a stop and closing quotation marks
_MAX_SENTENCE_CHARACTERS = 5000  # a longer block is not joined with the next one


# How words and sentences are told in any language. Vowel signs belong to the letters of Indian and Arabic scripts;
# \w does not match them. Two characters of Chinese or Japanese are about a word.
_LETTER = (
    r"(?:[^\W\d_][\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0903\u093a-\u094f\u0962\u0963]*)"
)
_CHINESE = r"[\u3040-\u30ff\u3400-\u9fff]"
_CLOSING = r"[\"')\]”’»›“‘）」』】》〉]*"
_WORD = re.compile(rf"{_CHINESE}{{2}}|{_LETTER}{{2,}}")
_LONG_WORD = re.compile(rf"{_CHINESE}{{2}}|{_LETTER}{{3,}}")  # formulas contain few
_SENTENCE_END = re.compile(rf"[.!?…。！？．؟۔।॥]{_CLOSING}$")
# The end of a sentence followed by the beginning of another. "J. Smith" and "Vol. 2" do not match.
_INNER_END = re.compile(rf"{_LETTER}{{3,}}[.!?؟۔।]{_CLOSING} [\"“‘(]?(?![a-z\d])|[。！？]")


def _count(words: re.Pattern[str], text: str) -> int:
    """Counts words up to `_MIN_SENTENCE_WORDS`; more of them make no difference."""
    return sum(1 for _ in itertools.islice(words.finditer(text), _MIN_SENTENCE_WORDS))


@dataclass
class Block:
    """Consecutive lines of one kind."""

    kind: str  # TEXT; INDENTED (by ":", such as quotations, verses and formulas); or ITEM (of a list)
    text: str  # cleaned, as one line

    @property
    def words(self) -> int:
        """Number of words of two letters or more, of which `_MIN_SENTENCE_WORDS` are counted."""
        return _count(_WORD, self.text)

    @property
    def is_open(self) -> bool:
        """Whether its last sentence has no end."""
        return not _SENTENCE_END.search(self.text, max(0, len(self.text) - _MAX_END))


def prose_paragraphs(text: str, language: str = ENGLISH) -> list[str]:
    """Returns the paragraphs of flat text in a language.

    Lines up to an empty line are joined. A sentence continues after an indented formula that interrupts it. Each list
    item is a paragraph of its own.
    """
    kept: list[str] = []
    lead = ""  # "He said:" is too short for a paragraph; it is kept if prose follows
    previous = Block(TEXT, "")
    for block in join_sentences(blocks(text, language)):
        if UNKNOWN_AMOUNT in block.text:
            sentences = split_sentences(block.text, language)
            block.text = " ".join(sentence for sentence in sentences if UNKNOWN_AMOUNT not in sentence)
        if is_prose(block, after=previous):
            kept += [lead, block.text] if lead else [block.text]
            lead = ""
        else:
            lead = block.text if block.kind == TEXT and block.words and block.text.endswith(":") else ""
        previous = block
    return kept


def blocks(text: str, language: str = ENGLISH) -> Iterator[Block]:
    """Joins lines to blocks, none of them empty. Remains of tables are removed."""
    kind, lines = TEXT, list[str]()
    blank = "" if closest(language, _WITHOUT_BLANKS) in _WITHOUT_BLANKS else " "
    for line in [*text.split("\n"), ""]:
        line = line.strip()
        content = line.lstrip("*#:; ")
        prefix = line[: len(line) - len(content)]
        line_kind = TEXT if not prefix else INDENTED if set(prefix) <= {":", " "} else ITEM
        if lines and (not content or line_kind != kind or kind == ITEM):
            if cleaned := clean(blank.join(lines), language):
                yield Block(kind, cleaned)
            lines = []
        if content and not line.startswith(("|", "! ", "!!", "!-", "{|", "----")):
            lines.append(content)
        kind = line_kind


def join_sentences(separate: Iterator[Block]) -> Iterator[Block]:
    """Joins blocks that are parts of one sentence, such as a sentence that an indented formula interrupts or ends.

    "It is" / ": E = mc^2," / "where m is the mass." become one block. A quotation after a colon stays separate.
    """
    current = Block(TEXT, "")
    for block in separate:
        if _goes_on(current, block):
            current = Block(current.kind, f"{current.text} {block.text}")
            continue
        if current.text:
            yield current
        current = block
    if current.text:
        yield current


def _goes_on(current: Block, block: Block) -> bool:
    if current.kind != TEXT or len(current.text) > _MAX_SENTENCE_CHARACTERS or not current.is_open:
        return False
    if current.words < _MIN_PARAGRAPH_WORDS:
        return False
    is_formula = block.words < _MIN_PARAGRAPH_WORDS
    if block.kind == INDENTED:
        return is_formula or not current.text.endswith(":")
    return block.kind == TEXT and block.text[0].islower()


def clean(text: str, language: str = ENGLISH) -> str:
    """Cleans one block: repairs punctuation around removed things, and removes escapes and all other markers."""
    text = " ".join(text.split())
    if REMOVED in text:
        text = _LOST_AMOUNT.sub(UNKNOWN_AMOUNT, text)
    text = repair(text, language)
    if language != ENGLISH:
        text = _EMPTY_PARENTHESES.sub("", text)
    return " ".join(unescape_markup(text).split())


def is_prose(block: Block, after: Block) -> bool:
    """Tells whether a block is prose.

    A paragraph must end like a sentence or have a few words. A list item must be or contain a sentence. An indented
    block may also be a quotation that the block before it (`after`) introduces.
    """
    if block.kind != TEXT and block.is_open:
        if _count(_LONG_WORD, block.text) < _MIN_SENTENCE_WORDS:
            return False
        if block.kind == INDENTED and after.kind != ITEM:
            return True
        return _INNER_END.search(block.text) is not None and not _CITATION.search(block.text)
    if block.kind == ITEM:
        return block.words >= _MIN_SENTENCE_WORDS and not _BIBLIOGRAPHY.search(block.text)
    return block.words >= _MIN_PARAGRAPH_WORDS or (block.words > 0 and not block.is_open)


# Punctuation around removed things: empty parentheses, doubled commas, blanks before a full stop.

_OPEN, _CLOSED = "\ue005", "\ue006"  # parentheses that are done
_MARKER = re.compile(f"[{REMOVED}{PRONUNCIATION}{UNKNOWN_AMOUNT}]")
_GROUP = re.compile(r"\(([^()]*)\)")
_MAX_GROUPS = 8  # parentheses inside each other; the outer ones stay as they are
# (?<!\s) keeps the work linear: no match begins inside a row of blanks.
_SEPARATOR = re.compile(rf"(?:(?<!\s)\s+)?([;,])(?=\s|$|[{REMOVED}{PRONUNCIATION}])\s*")
_PRONUNCIATION = re.compile(rf"(?:(?<!\s)\s+)?{PRONUNCIATION}([^{PRONUNCIATION_END}]*){PRONUNCIATION_END}")
# Words that only introduce a pronunciation or a removed template, and mean nothing without it.
_LEADING = (
    r"(?:pronounced|pronunciation|pron|ipa|locally|also|or|and|in|is|listen|local|native|as|traditionally|usually"
    r"|sometimes|commonly|rarely|the|u\.?s|u\.?k|rp|ga|american|british|australian|canadian|english|years|ago|born"
    r"|age|aged|respectively|see|stress|on|first|second|third|syllable|with)"
)
# Each string matches in one way only; with two, the time would double with each word.
_EMPTY_PART = re.compile(rf"(?:{REMOVED}|\s|[/:,'\"“”–-]|\b{_LEADING}\b\.?)*", re.IGNORECASE)
# A sentence about the sound itself needs the pronunciation: "the vowel /a/", "pronounced /a/".
_SPEAKS_OF_SOUND = re.compile(rf"(?:(?:^|\s)[a-z]+[:,]?|[/{PRONUNCIATION_END}],?)$")
_SOUND_WORD = re.compile(
    r"(?:^|\s)(?:vowels?|consonants?|phonemes?|sounds?|named|as|like|to|of|is|and|or|than|with|by)$"
)
_QUOTING = ("⟨", '"', "“", "‘", "'", "[", "/")
_ELLIPSIS = re.compile(r"\. \. \.(?: \.)?")
# A blank before a full stop or comma: typed, or left by a reference that was removed.
_LOOSE_STOP = re.compile(r"(?<=[\w)\]%\"'”’]) ([.,;]|(?<=\w\w ):)(?= [^.,;(]|$)")
_LOOSE_STOP_IN_FRENCH = re.compile(r"(?<=[\w)\]%\"'”’]) ([.,])(?= [^.,;(]|$)")
_AT_START = re.compile(rf"^(?:{REMOVED}[\s{REMOVED}]*[.,;:]*\s*)+")
# "a, ⌀, b": the later comma stays.
_BEFORE_SEPARATOR = re.compile(
    rf"(?:(?<!\s)\s+)?[,;:、，；：]\s*{REMOVED}[\s{REMOVED}]*(?=[,;:.)、，；：。）])"
    rf"|(?<=[（「『]){REMOVED}[\s{REMOVED}]*[,;、，；：]\s*"
)
_BEFORE_STOP = re.compile(
    rf"(?<![\s{REMOVED}])(?=\s*{REMOVED})[\s{REMOVED}]++(?=[.,;:!?)\]’”](?:\s|$|[{REMOVED}\"'”’)\]]))"
)
# Each is found faster than the pattern above with its name, and is in every text in which that one matches.
_HAS_BEFORE_SEPARATOR = re.compile(rf"[,;:、，；：]\s*{REMOVED}|[（「『]{REMOVED}")
_HAS_BEFORE_STOP = re.compile(rf"{REMOVED}\s*[.,;:!?)\]’”]")
_AFTER_BLANK = re.compile(rf"{REMOVED}(?<=[\s(\[“‘]{REMOVED})[\s{REMOVED}]*")


def repair(text: str, language: str = ENGLISH) -> str:
    """Repairs one paragraph around the markers REMOVED and PRONUNCIATION, and blanks before a full stop or comma.

    An ellipsis typed as ". . ." becomes "...". French has a blank before ":" and ";".
    """
    if _MARKER.search(text):
        text = _repair_around_markers(text)
    if " ." in text:
        text = _ELLIPSIS.sub("...", text)
    text = text.strip()
    if any(stop in text for stop in (" .", " ,", " ;", " :")):
        text = (_LOOSE_STOP_IN_FRENCH if language == "fr" else _LOOSE_STOP).sub(r"\1", text)
    return text


def _repair_around_markers(text: str) -> str:
    for _ in range(_MAX_GROUPS):  # from the innermost parentheses outwards
        before, text = text, _GROUP.sub(_repair_group, text)
        if before == text:
            break
    text = text.replace(_OPEN, "(").replace(_CLOSED, ")")
    if PRONUNCIATION in text:
        text = _PRONUNCIATION.sub(lambda match: _keep_pronunciation(match, _SPEAKS_OF_SOUND), text)
    text = _AT_START.sub("", text)
    if _HAS_BEFORE_SEPARATOR.search(text):
        text = _BEFORE_SEPARATOR.sub("", text)
    if _HAS_BEFORE_STOP.search(text):
        text = _BEFORE_STOP.sub("", text)
    return _AFTER_BLANK.sub("", text).replace(REMOVED, "")


def _keep_pronunciation(match: re.Match[str], reason: re.Pattern[str]) -> str:
    """Returns a pronunciation in running text, or "" if it only accompanies a name."""
    before = match.string[max(0, match.start() - 40) : match.start()]
    if match[0].startswith(PRONUNCIATION) and before.endswith(_QUOTING):
        return match[1]  # in quotation marks or brackets: the sentence is about it
    return f" {match[1]}" if reason.search(before) else REMOVED


def _repair_group(match: re.Match[str]) -> str:
    """Removes the empty parts of a pair of parentheses without nested ones, and the pair if nothing is left."""
    content = match[1]
    if not _MARKER.search(content):
        return f"{_OPEN}{content}{_CLOSED}"
    parts = _SEPARATOR.split(content)  # part, separator, part, ...
    text = ""
    for index in range(0, len(parts), 2):
        part = parts[index]
        if UNKNOWN_AMOUNT in part:
            continue
        is_marked = _MARKER.search(part)
        if not part.strip() or (is_marked and _EMPTY_PART.fullmatch(_PRONUNCIATION.sub(REMOVED, part))):
            continue
        part = _PRONUNCIATION.sub(lambda said: _keep_pronunciation(said, _SOUND_WORD), part)
        text += f"{parts[index - 1]} {part}" if text else part
    text = re.sub(rf"(?<=\s){REMOVED}\s*|\s*{REMOVED}$|{REMOVED}", "", text).strip()
    return f"{_OPEN}{text}{_CLOSED}" if text else REMOVED
