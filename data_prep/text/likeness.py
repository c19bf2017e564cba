"""Tells which language a text looks like, by its script and by frequent words (`likeness.toml`)."""

import re
import tomllib
import unicodedata
from collections import Counter
from pathlib import Path

from data_prep.text import closest

_TABLE: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_WORD = re.compile(r"[^\s\d.,:;!?()\[\]\"“”„«»।،-]+")
MIN_LETTERS = 400  # a shorter text may look like anything


def other_language(text: str, language: str) -> str | None:
    """Returns the code of the language that a text looks like, if it does not look like `language`; None otherwise.

    It does not if its script is another, or if another language has twice as many of its frequent words in the text,
    and more than 5 % of all words.
    None, too: the text is short, or the table lacks `language` or the language of the text.
    """
    letters = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha())
    languages = _TABLE.get(max(letters, key=letters.__getitem__, default=""), {})
    code = next((found for table in _TABLE.values() if (found := closest(language, table)) in table), None)
    if code is None or not languages or letters.total() < MIN_LETTERS:
        return None
    counts = Counter(_WORD.findall(text.lower()))
    numbers = {other: sum(map(counts.__getitem__, words.split())) for other, words in languages.items()}
    best = max(numbers, key=numbers.__getitem__)
    is_clear = 2 * numbers.get(code, 0) < numbers[best] and numbers[best] > 0.05 * counts.total()
    return best if is_clear or code not in numbers else None
