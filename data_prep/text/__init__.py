"""Plain text -> tokens. This module has the codes of languages, and tells which one a text looks like.

sentences                 splits text into sentences
english                   where English sentences end
normalize                 ALBERT's text normalisation, and what a vocabulary keeps of case and accents
vocabulary                what a vocabulary is, and where its file is found
load_vocabulary           reads a vocabulary of either kind
sentencepiece_vocabulary  ALBERT's kind: a SentencePiece model with special pieces
wordpiece_vocabulary      BERT's kind: WordPiece, by the library `tokenizers`
tokenizer_json            a SentencePiece model as tokenizer.json for `transformers`, and back
text_encoder              encodes sentences fast, each different word once; tells which characters tokens come from
"""

import argparse
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Container
from pathlib import Path

ENGLISH = "en"
_WORD = re.compile(r"[^\s\d.,:;!?()\[\]\"“”„«»।،-]+")
MIN_LETTERS = 400  # a shorter text may look like anything
_CLOSEST = {"no": "nb", "nn": "nb", "bs": "hr", "als": "gsw", "be-x-old": "be-tarask"}
_CLOSEST |= dict.fromkeys(["yue", "wuu", "gan", "lzh"], "zh")
"""Other codes of the same language or one whose writing is alike, for tables that lack a language."""


def closest(language: str, table: Container[str]) -> str:
    """Returns the code by which a table knows a language: "nb" for "no", "zh" for "zh-hant", or itself."""
    general = language.partition("-")[0]
    codes = (language, _CLOSEST.get(language, ""), general, _CLOSEST.get(general, ""))
    return next((code for code in codes if code in table), language)


def language_code(text: str) -> str:
    """A type for argparse: the code of a language, such as "de", in small letters. Any country's English is "en"."""
    if not re.fullmatch(r"[a-z]{2,3}(?:-[a-z0-9]{2,8})*", code := text.lower()):
        raise argparse.ArgumentTypeError(f"{text} is not the code of a language; give one such as de, ru or zh")
    return ENGLISH if code.startswith("en-") else code


def other_language(text: str, language: str) -> str | None:
    """Returns the code of the language that a text looks like, if it does not look like `language`; None otherwise.

    It does not if its script is another, or if another language has twice as many of its frequent words in the text,
    and more than 5 % of all words (`likeness.toml`).
    None, too: the text is short, or the table lacks `language` or the language of the text.
    """
    tables = tomllib.loads(Path(__file__).with_name("likeness.toml").read_text(encoding="utf-8"))
    letters = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha())
    languages = tables.get(max(letters, key=letters.__getitem__, default=""), {})
    code = next((found for table in tables.values() if (found := closest(language, table)) in table), None)
    if code is None or not languages or letters.total() < MIN_LETTERS:
        return None
    counts = Counter(_WORD.findall(text.lower()))
    numbers = {other: sum(map(counts.__getitem__, words.split())) for other, words in languages.items()}
    best = max(numbers, key=numbers.__getitem__)
    is_clear = 2 * numbers.get(code, 0) < numbers[best] and numbers[best] > 0.05 * counts.total()
    return best if is_clear or code not in numbers else None
