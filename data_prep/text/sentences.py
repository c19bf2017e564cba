"""Splits text into sentences.

This comes before normalisation, because capitals and typographic quotes help to find the end of a sentence.
"""

import re
from collections.abc import Iterator

import sentencex

from data_prep.text.english import english_sentences
from data_prep.text.languages import ENGLISH

_WIDE_SPACES = "\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_TO_SPACES = str.maketrans(dict.fromkeys(_WIDE_SPACES, " "))
MAX_CHARACTERS = 1 << 17
"""Characters of a paragraph that are split at once. It bounds the memory for books without line breaks."""


# What sentencex 1.0.32 takes for the end of a sentence: abbreviations before names, and "im 3. Stock".
_TITLES = {
    "de": re.compile(r"(?:^|[\s(])(?:[IiAa]m|[Zz]um|[Zz]ur|[Vv]om|[Bb]eim|[Dd](?:er|en|em|es|ie|as)) \d{1,2}\.\s*$"),
    "fr": re.compile(r"(?:^|[\s('’«])(?:MM?|Mgr|St|Ste|Dr|Pr)\.\s*$"),
    "pl": re.compile(r"(?:^|[\s(])(?:[Kk]s|[Bb]p|[Śś]w|[Aa]bp|[Ii]nż|[Pp]łk|[Gg]en)\.\s*$"),
    "hi": re.compile(r"(?:^|[\s(])(?:डॉ|प्रो|श्री|सुश्री|पं|(?:कि\.)?मी)\.\s*$"),
    "ar": re.compile(r"(?:^|[\s(])(?:د|أ|م)\.\s*$"),
}
_BEFORE_NUMBER = re.compile(r"(?:^|[\s(])(?:[^\W\d_]{1,2}|[Vv]ol)\.\s*$")  # "t. 2", "No. 5"
_DASHES = "—–-"
_CLOSING = tuple("」』）】》〉”»")
_WITHOUT_BLANKS = frozenset(["ja", "zh"])  # between sentences
# 「はい。」と言った。is one sentence: the quotation is its object.
_QUOTATION_END, _AFTER_QUOTATION = ("」", "』"), tuple("とを、のがはもでに") + ("って",)


def split_sentences(text: str, language: str = ENGLISH) -> list[str]:
    """Returns the sentences of un-normalised text: stripped, none empty. A line break always ends a sentence.

    language: its code, such as "de". Of a language that sentencex does not know, it takes the rules of English.

    Non-ASCII white space becomes spaces: sentencex 1.0.32 counts each as one byte, and panics at "J\u00a0.".
    """
    return list(iterate_sentences(text, language))


def iterate_sentences(text: str, language: str = ENGLISH) -> Iterator[str]:
    """Yields the sentences of `split_sentences` with those of one paragraph in memory."""
    for paragraph in _paragraphs(text, language):
        if paragraph.isspace():
            continue
        if not paragraph.isascii() and any(space in paragraph for space in _WIDE_SPACES):
            paragraph = paragraph.translate(_TO_SPACES)
        if language == ENGLISH:
            yield from english_sentences(paragraph)
            continue
        for sentence in _joined(paragraph, language):
            sentence = sentence.strip()
            if sentence:
                yield sentence


def _joined(paragraph: str, language: str) -> Iterator[str]:
    """Splits a paragraph with sentencex, and joins what is no sentence of its own: "im 3. | jahrhundert"."""
    current = ""
    for part in sentencex.segment(language, paragraph):
        if current and not _goes_on(current, part, language):
            yield current
            current = ""
        current += part
    if current:
        yield current


def _goes_on(current: str, part: str, language: str) -> bool:
    """Whether `part` goes on with the sentence `current`. Letters without case are no capitals and no small letters."""
    before = current.rstrip()
    if part.startswith(_CLOSING):
        return True
    if language == "ja" and before.endswith(_QUOTATION_END) and part.startswith(_AFTER_QUOTATION):
        return True
    if before.endswith(".") and len(before) == len(current) and language not in _WITHOUT_BLANKS:
        return True  # "J.-C.", "कि.मी."
    if before[-1:] in {".", *_CLOSING} and part.lstrip(f" {_DASHES}")[:1].islower():
        return True
    if part[:1].isdigit() and _BEFORE_NUMBER.search(before[-8:]):
        return True
    title = _TITLES.get(language)
    return title is not None and title.search(current[-12:]) is not None


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
