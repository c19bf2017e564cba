"""Splits text into sentences. `english` has the rules for English, and this module those for other languages.

This comes before normalisation, because capitals and typographic quotes help to find the end of a sentence.

In other languages, a sentence ends at a stop, with the quotation marks and brackets that close after it, if white space
follows and no small letter, dashes and opening marks aside ("! — сказал он"). A wide stop (。) needs no white space.
Exceptions:

- abbreviations and initials, from the table of the language (`boundaries.toml`),
- words without vowels, which are abbreviations in any language of letters with case,
- ordinal numbers, and the number that begins a sentence ("3. Choose a site"),
- the words that name a speaker after a quotation in Chinese, Japanese and Korean.

Of a language without a table, sentencex tells which full stops belong to abbreviations.
"""

import itertools
import re
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sentencex

from data_prep.text import ENGLISH, closest
from data_prep.text.english import english_sentences

_TABLES = tomllib.loads(Path(__file__).with_name("boundaries.toml").read_text(encoding="utf-8"))
_WIDE = "。！？｡"
_STOPS = ".!?…．؟۔।॥։።፧၊။។៕༎"
_CLOSING = "\"'’”»“›)\\]}"
_WIDE_CLOSING = "」』）】》〉”’»"
_CANDIDATE = re.compile(
    rf"""
    [{_STOPS}{_WIDE}] (?<![{_STOPS}{_WIDE}]{{2}}) (?:
        (?<=[{_STOPS}]) (?=[\s{_STOPS}{_CLOSING}{_WIDE_CLOSING}])
            [{_STOPS}]*+ (?: [{_CLOSING}{_WIDE_CLOSING}] | \ » )* \s++
        | (?: (?<=[{_WIDE}]) | [{_STOPS}]*[{_WIDE}] ) [.!?{_WIDE}]*+ [{_WIDE_CLOSING}"')]*+ \s*+
        | (?<=…) …*+ [」』”]++ \s*+
        | (?<=[\u3040-\u30ff\u4e00-\u9fff][!?]) [!?]*+ (?=[\u3040-\u30ff\u4e00-\u9fff「『])
    )
    """,
    re.VERBOSE,
)
_OPENING = re.compile(r"(?:['’][a-z]\ |[\s\"'“”‘’«»„‚‹›(\[{¿¡*•]|[—–-](?!-))*")
_LABEL = re.compile(r"\W*(?:\d{1,3}(?:\.\d{1,3})*|[IVXLC]{1,7}|\w)[)\]]?")
_ROMAN = re.compile(r"[IVXLCDM]+")
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.-?)*[^\W\d_]{1,2}")
_WORD = re.compile(r"(?:[^\s(\[{«»“”„‚‘\"'’‹›—–/]|['’](?=\w$))*$")  # "ing" in "dell'ing", and "Somali's"
_PRIOR = re.compile(r"(?<!\w)(\w{1,2})\.$")
_GOES_ON = re.compile(r"[:;,](?!\S)")  # and neither ",," that opens a quotation, nor a smiley
_VOWELS = frozenset("aeiouyæøœıаеиоуыэюяєіαεηιουω")
_WITHOUT_STOPS = re.compile(r"[\u0e00-\u109f\u1780-\u17ff]")  # Thai, Lao, Tibetan, Burmese, Khmer
_NEXT_WORD = re.compile(r"\w*")
_LOOK_BACK = 40  # characters that are looked at on either side, so that time is linear
_BLANKS = 3  # at most, in the beginning of a sentence that goes on after an abbreviation: "W XIII w. Hesja stała się"
_WIDE_SPACES = "\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_TO_SPACES = str.maketrans(dict.fromkeys(_WIDE_SPACES, " "))
MAX_CHARACTERS = 1 << 17  # of a paragraph that are split at once: bounds the memory for books without line breaks


def split_sentences(text: str, language: str = ENGLISH) -> list[str]:
    """Returns the sentences of un-normalised text: stripped, none empty. A line break always ends a sentence.

    Non-ASCII white space becomes spaces: sentencex 1.0.32 counts each as one byte, and panics at "J\u00a0.".
    """
    return list(iterate_sentences(text, language))


def iterate_sentences(text: str, language: str = ENGLISH) -> Iterator[str]:
    """Yields the sentences of `split_sentences` with those of one paragraph in memory."""
    has_wide = not text.isascii() and any(space in text for space in _WIDE_SPACES)
    for paragraph in _paragraphs(text, language):
        if paragraph.isspace():
            continue
        if has_wide and not paragraph.isascii() and any(space in paragraph for space in _WIDE_SPACES):
            paragraph = paragraph.translate(_TO_SPACES)
        if language == ENGLISH:
            yield from english_sentences(paragraph)
        else:
            yield from _foreign_sentences(paragraph, language)


def _paragraphs(text: str, language: str) -> Iterator[str]:
    """Yields the lines of `text` that are not empty. Those over `MAX_CHARACTERS` are cut after a sentence or a word."""
    start = 0
    while start < len(text):
        end = text.find("\n", start, start + MAX_CHARACTERS)
        if end < 0 and len(text) - start <= MAX_CHARACTERS:
            end = len(text)
        if end < 0:
            limit = start + MAX_CHARACTERS
            end = text.rfind(". ", start, limit) + 1 or text.rfind(" ", start, limit) + 1 or limit
            if language != ENGLISH:  # no blank may follow the end of a sentence
                end = max(end if end < limit else 0, *(text.rfind(stop, start, limit) + 1 for stop in "。।؟")) or limit
            yield text[start:end]
            start = end
            continue
        if end > start:
            yield text[start:end]
        start = end + 1


@dataclass(frozen=True)
class _Rules:
    """The table of a language; each word has one of the classes "binding" and "either", or none."""

    known: bool
    classes: dict[str, str]
    numbered: frozenset[str]
    starters: frozenset[str]
    before_ordinals: frozenset[str]
    ordinals: str
    quotes: re.Pattern[str] | None
    tails: frozenset[str]


@cache
def _rules(language: str) -> _Rules:
    table = _TABLES.get(closest(language, _TABLES))
    tables = [_TABLES["common"], table or {}]
    classes = {word: key for part in tables for key in ("either", "binding") for word in part.get(key, "").split()}
    numbered = frozenset(word for part in tables for word in part.get("numbered", "").split())
    return _Rules(
        known=table is not None,
        classes=classes,
        numbered=numbered,
        starters=frozenset(tables[1].get("starters", "").split()),
        before_ordinals=frozenset(tables[1].get("before_ordinals", "").split()),
        ordinals=tables[1].get("ordinals", ""),
        quotes=re.compile(tables[1]["quotes"]) if "quotes" in tables[1] else None,
        tails=frozenset(word[-4:] for word in numbered.union(classes)),
    )


def _foreign_sentences(paragraph: str, language: str) -> Iterator[str]:
    """Yields the sentences of a paragraph, stripped. The paragraph must not be empty, or of white space alone."""
    rules = _rules(language)
    known: set[int] | None = None  # where sentencex ends sentences
    begin, length = 0, len(paragraph)
    for match in _CANDIDATE.finditer(paragraph):
        if match.end() == length:
            break
        if not _ends_clearly(paragraph, match, rules) and not _ends(paragraph, match, begin, rules):
            continue
        if not rules.known and match[0].rstrip().rstrip(_CLOSING) == ".":
            if known is None:
                known = set(itertools.accumulate(len(part) for part in sentencex.segment(language, paragraph)))
            if match.end() not in known:
                continue
        yield paragraph[begin : match.end()].strip()
        begin = match.end()
    yield paragraph[begin:].strip()


def _ends_clearly(paragraph: str, match: re.Match[str], rules: _Rules) -> bool:
    """Whether a stop and a blank stand between a long word and a capital, or Korean words. So most sentences end."""
    first, after = match.span()
    tail, following = paragraph[first - 4 : first], paragraph[after]
    if after != first + 2 or not tail.isalpha() or tail in rules.tails:
        return False
    return (following.isupper() and tail.islower()) or (_is_hangul(following) and _is_hangul(tail[3]))


def _is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"


def _ends(paragraph: str, match: re.Match[str], begin: int, rules: _Rules) -> bool:
    """Whether the sentence that begins at `begin` ends at the candidate."""
    first, after = match.span()
    if paragraph.startswith(("--", "——", "…"), after):
        return False  # the source of a quotation, or what goes on in Chinese
    start = _OPENING.match(paragraph, after).end()  # type: ignore[union-attr]
    following = paragraph[start : start + 1]
    if following.islower() or _GOES_ON.match(paragraph, start):
        return False
    stop = match[0].rstrip()
    quoted = stop[-1] not in _STOPS + _WIDE + ")]}）】"
    if quoted and rules.quotes and rules.quotes.match(paragraph, after):
        return False
    if stop[0] != "." or stop[:2] == ".." or quoted:
        head = paragraph[begin : min(first, begin + _LOOK_BACK)]
        return stop[0] not in ".…" or any(character.isalnum() for character in head)
    if first - begin <= 12 and _LABEL.fullmatch(paragraph, begin, first):
        return False
    while first > begin and paragraph[first - 1] == " ":
        first -= 1  # "Sept ." in tokenised text
    word = _WORD.search(paragraph, max(begin, first - _LOOK_BACK), first)[0]  # type: ignore[index]
    before = paragraph[max(begin, first - _LOOK_BACK) : first - len(word)].rstrip()
    if word.isdigit() and before.endswith((":", ";", "]")):
        return False  # the first number of a list
    if (prior := _PRIOR.search(before)) and f"{prior[1]}.{word}".lower() in rules.classes:
        word = f"{prior[1]}.{word}"  # "и т. п." is an abbreviation of two words
    if _WITHOUT_STOPS.match(word[-1:]):
        return False
    next_word = _NEXT_WORD.match(paragraph, start)[0]  # type: ignore[index]
    kind = _class_of(word, before.rpartition(" ")[2], next_word, rules)
    if kind == "either":
        short = paragraph.count(" ", begin, min(first, begin + 5 * _LOOK_BACK)) <= _BLANKS
        return not short and paragraph[after] not in "—–-"
    return kind != "binding"


def _class_of(word: str, before: str, next_word: str, rules: _Rules) -> str:
    """The class of a word with a full stop: "binding", "either", or "" for the end of a sentence."""
    small, number, starts = word.lower(), next_word[:1].isdigit(), next_word.lower() in rules.starters
    if word.isdigit() or (len(word) > 1 and _ROMAN.fullmatch(word)):
        is_long = len(word) > 2 and word.isdigit() and before.lower() not in rules.before_ordinals
        if starts or not rules.ordinals or is_long:
            return ""
        own = rules.ordinals in ("arabic" if word.isdigit() else "roman", "both")
        return "binding" if own or number else ""
    if small in rules.numbered and number:
        return "binding"
    if len(word) == 1 and word != small:
        return "" if starts else "binding"  # an initial
    if small in rules.classes:
        return rules.classes[small]
    if "." in word and _INITIALS.fullmatch(word):
        return "either" if word == small else "binding"
    if word.isalpha() and len(word) <= 4 and not word.isupper() and not _has_vowel(word):
        return "either" if number else "binding"
    return ""


def _has_vowel(word: str) -> bool:
    """Whether the word can be spoken. Letters without case count as vowels, and so do r and l in the middle ("vlk")."""
    letters = unicodedata.normalize("NFD", word.lower())
    return word.lower() == word.upper() or not _VOWELS.isdisjoint(letters) or not {"r", "l"}.isdisjoint(letters[1:])
