"""Plain text: ALBERT's normalisation, and sentences.

`normalize` is what the published vocabulary was trained on (NFKD, no accents, lower case, single spaces); sentences are
split before it, because capitals and typographic quotes help to find where one ends.
"""

import functools
import re
import unicodedata

import sentencex

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_WIDE_SPACES = "\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_TO_SPACES = str.maketrans(dict.fromkeys(_WIDE_SPACES, " "))


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


def normalize_word(word: str) -> tuple[str, list[int]]:
    """`normalize` of one word (no white space in it), and which character of `word` each character comes from.

    Returns:
        The normalised text, which may be empty or hold spaces, and as many indices, ascending.
    """
    pieces, sources = [], []
    index = 0
    while index < len(word):
        width = 2 if word[index : index + 2] in ("``", "''") else 1
        made = '"' if width == 2 else _decompose(word[index])
        pieces.append(made)
        sources += [index] * len(made)
        index += width
    # Lower-casing keeps the length: the one letter with a longer lower case (İ) is decomposed before.
    characters = "".join(pieces).lower()
    kept = [
        position
        for position, character in enumerate(characters)
        if not character.isspace() or (position + 1 < len(characters) and not characters[position + 1].isspace())
    ]
    if kept and characters[kept[0]].isspace():
        kept = kept[1:]
    text = "".join(" " if characters[position].isspace() else characters[position] for position in kept)
    return text, [sources[position] for position in kept]


def split_sentences(text: str) -> list[str]:
    """The sentences of un-normalised English text, stripped, none empty; a line break always ends one.

    White space beyond ASCII becomes spaces: sentencex 1.0.32 takes each for one byte, and panics at "J\u00a0.".
    """
    if not text.isascii() and any(space in text for space in _WIDE_SPACES):
        text = text.translate(_TO_SPACES)
    sentences = []
    for paragraph in text.split("\n"):
        if not paragraph or paragraph.isspace():
            continue
        for sentence in sentencex.segment("en", paragraph):
            sentence = sentence.strip()
            if sentence:
                sentences.append(sentence)
    return sentences
