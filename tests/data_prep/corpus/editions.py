"""Makes another edition of a text, with the differences between two printings of one book, from a seed."""

import re
import textwrap

import numpy as np

_SPELLINGS = {r"our\b": "or", r"is(e|ed|ing)\b": r"iz\1", r"\b([Ss])how": r"\1hew", r"ll(ed|ing|er)\b": r"l\1"}
_SPELLINGS |= {r"\bto-?day\b": "to-day", r"ic\b": "ick"}


def edit(text: str, seed: int, misprints: float = 0.01) -> str:
    """Returns `text` with other spellings, line ends, quotes and stops, a preface of 150 words, and misprints.

    `misprints` is the share of the words that are left out or printed wrongly.
    """
    generator = np.random.default_rng(seed)
    for pattern, replacement in _SPELLINGS.items():
        text = re.sub(pattern, replacement, text)
    words = text.replace('"', "'").split()
    chance = generator.random(len(words)).tolist()
    printed = []
    for word, drawn in zip(words, chance):
        if drawn < misprints / 2:
            continue
        if drawn < misprints:
            word = word[::-1]
        elif drawn < 0.1:
            word = word.rstrip(",;.:") + "," * (drawn < 0.05)
        printed.append(word)
    preface = " ".join(f"preface{number}" for number in generator.integers(0, 10_000, 150))
    paragraphs = [" ".join(printed[first : first + 90]) for first in range(0, len(printed), 90)]
    return "\n".join([preface, *(textwrap.fill(paragraph, 61) for paragraph in paragraphs)])
