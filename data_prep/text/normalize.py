"""ALBERT's text normalisation: NFKD, no accents, lower case, single spaces.

The published vocabulary was trained on text in this form. A vocabulary can also keep capitals, or accents, which then
are composed (NFKC). In many languages accents are parts of letters: without them, Russian й is и, Japanese が is
か, and Hindi loses the sign that joins consonants.

The file of a vocabulary says which normalisation it was trained on. A tokenizer.json describes BERT's by itself.
SentencePiece keeps the name of its own normalisation in a model, and does not read it again. Here it is "identity",
followed by what is kept: "identity+case+accents". Any other name, as in published models, stands for ALBERT's own.
"""

import functools
import re
import unicodedata
from dataclasses import dataclass

_IDENTITY, _CASE, _ACCENTS = "identity", "case", "accents"


@dataclass(frozen=True)
class Normalization:
    """How text is normalised before it is encoded. The default is ALBERT's: no capitals, no accents."""

    keep_case: bool = False
    keep_accents: bool = False
    of_bert: bool = False  # as BERT does: control characters go, and other forms of a letter are not replaced

    @classmethod
    def of_name(cls, name: str) -> "Normalization":
        """Returns what the name in a SentencePiece model says."""
        first, *kept = name.split("+")
        return cls(_CASE in kept, _ACCENTS in kept) if first == _IDENTITY else cls()

    @property
    def name(self) -> str:
        """The name for a SentencePiece model."""
        return _IDENTITY + f"+{_CASE}" * self.keep_case + f"+{_ACCENTS}" * self.keep_accents

    @property
    def description(self) -> str:
        """A few words for people, which manifests contain."""
        if self.of_bert:
            form = "as BERT" if self.keep_accents else "as BERT, no accents"
        else:
            form = "nfkc" if self.keep_accents else "nfkd, no accents"
        return f"{form}{'' if self.keep_case else ', lower case'}, single spaces"


ALBERT_NORMALIZATION = Normalization()

_NUL, _SIGN = "\0", "▁"
BLANKS = _NUL + _SIGN  # characters that count as a space: NUL, and SentencePiece's own sign for one
_BLANKS = str.maketrans(dict.fromkeys(BLANKS, " "))
_MAX_RUN = 256  # characters decomposed in one call, which sorts the marks behind a letter in quadratic time
_NON_ASCII = re.compile(rf"[^\x00-\x7f]{{1,{_MAX_RUN}}}")


@functools.lru_cache(maxsize=1 << 16)
def _decompose(run: str) -> str:
    """NFKD of a run of characters, without combining marks (the accents).

    The order of marks is all that NFKD decides beyond single characters, and all marks are removed. So a run may be cut
    anywhere.
    """
    return "".join(c for c in unicodedata.normalize("NFKD", run) if not unicodedata.combining(c))


def normalize(text: str, kind: Normalization = ALBERT_NORMALIZATION) -> str:
    """Normalises text as ALBERT's reference code does (`preprocess_text`, in lower case), but for double quotes.

    Steps, in order: NUL and "▁" become spaces; `` and '' become a plain double quote; compatibility decomposition
    (NFKD); combining marks are removed; lower case; each run of white space (line breaks, too) becomes one space, and
    none remains at the ends.

    The second step is a rule of this project and of transformers' `AlbertTokenizer`; the reference lacks it. Without
    it, two single quotes would be other tokens than the double quote that they stand for. It changes 18 of 598,060
    sentences of novels, introductions and articles of Wikipedia.

    kind: what is kept. With accents, text is composed (NFKC) and no mark is removed.
    """
    if _NUL in text or _SIGN in text:
        text = text.translate(_BLANKS)
    if "``" in text or "''" in text:
        text = text.replace("``", '"').replace("''", '"')
    if not text.isascii() and kind.keep_accents:
        text = unicodedata.normalize("NFKC", text)
    elif not text.isascii():
        # ASCII characters are their own decomposition, and no combining mark moves across one. So runs of other
        # characters are decomposed alone, from a cache: in English the same few occur again and again.
        text = _NON_ASCII.sub(lambda match: _decompose(match[0]), text)
    return " ".join((text if kind.keep_case else text.lower()).split())


def _compose(word: str, start: int) -> tuple[str, int]:
    """NFKC of the character at `start` with those after it that it is composed with, and the number of characters."""
    end = start + 1
    made = unicodedata.normalize("NFKC", word[start])
    while end < len(word):
        following = unicodedata.normalize("NFKD", word[end])
        together = unicodedata.normalize("NFKC", word[start : end + 1])
        is_mark = unicodedata.combining(following[0]) != 0
        if not is_mark and together == made + unicodedata.normalize("NFKC", word[end]):
            break
        made, end = together, end + 1
    return made, end - start


def normalize_word(word: str, kind: Normalization = ALBERT_NORMALIZATION) -> tuple[str, list[int]]:
    """Normalises one word (without white space), and tells which character of `word` each result comes from.

    Returns the text, which may be empty or contain spaces, and one ascending index for each of its characters.
    """
    normalized, sources = [], []
    index = 0
    while index < len(word):
        width = 2 if word[index : index + 2] in ("``", "''") else 1
        if width == 2:
            made = '"'
        elif kind.keep_accents:
            made, width = _compose(word, index)
        else:
            made = _decompose(word[index])
        if not kind.keep_case:
            made = made.replace("İ", "i\u0307")  # the only letter whose lower case is longer
        normalized.append(made)
        sources += [index] * len(made)
        index += width
    characters = "".join(normalized) if kind.keep_case else "".join(normalized).lower()
    text, places = "", list[int]()
    for character, source, following in zip(characters, sources, f"{characters[1:]} "):
        if not character.isspace() or (text and not following.isspace()):  # of a run of blanks, the last one stays
            text += " " if character.isspace() else character
            places.append(source)
    return text, places
