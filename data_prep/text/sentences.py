"""Splits text into sentences.

This comes before normalisation, because capitals and typographic quotes help to find the end of a sentence.
"""

from collections.abc import Iterator

from data_prep.text.boundaries import sentences_of
from data_prep.text.english import english_sentences
from data_prep.text.languages import ENGLISH

_WIDE_SPACES = "\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_TO_SPACES = str.maketrans(dict.fromkeys(_WIDE_SPACES, " "))
MAX_CHARACTERS = 1 << 17
"""Characters of a paragraph that are split at once. It bounds the memory for books without line breaks."""


def split_sentences(text: str, language: str = ENGLISH) -> list[str]:
    """Returns the sentences of un-normalised text: stripped, none empty. A line break always ends a sentence.

    language: its code, such as "de".

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
        else:
            yield from sentences_of(paragraph, language)


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
