"""Plain text: ALBERT's normalisation, and sentences.

`normalize` is what the published vocabulary was trained on (NFKD, no accents, lower case, single spaces); sentences are
split before it, because capitals and typographic quotes help to find where one ends.
"""

import functools
import re
import unicodedata

import sentencex

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")


@functools.lru_cache(maxsize=1 << 16)
def _decompose(run: str) -> str:
    """NFKD of one run of characters beyond ASCII, without its combining marks (the accents)."""
    return "".join(c for c in unicodedata.normalize("NFKD", run) if not unicodedata.combining(c))


def normalize(text: str) -> str:
    """Text as ALBERT sees it (its reference code's `preprocess_text`, with lower-casing and without accents).

    In order: `` and '' become a plain double quote, compatibility decomposition (NFKD), combining marks dropped,
    lower case, every run of white space one space and none at the ends. Line breaks are white space too.
    """
    if "``" in text or "''" in text:
        text = text.replace("``", '"').replace("''", '"')
    if not text.isascii():
        # ASCII characters are their own decomposition and no mark moves across one, so runs can be taken alone;
        # in English the same few (an accented letter, a dash, a quote) come over and over.
        text = _BEYOND_ASCII.sub(lambda match: _decompose(match[0]), text)
    return " ".join(text.lower().split())


def split_sentences(text: str) -> list[str]:
    """The sentences of un-normalised English text, stripped, none empty; a line break always ends one."""
    sentences = []
    for paragraph in text.split("\n"):
        if not paragraph or paragraph.isspace():
            continue
        for sentence in sentencex.segment("en", paragraph):
            sentence = sentence.strip()
            if sentence:
                sentences.append(sentence)
    return sentences
