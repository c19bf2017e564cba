"""Tokens of a text together with where each stands in it, as it is spelled: before any normalisation.

The tokens are those of `data_prep.encoder`, which pre-training reads. As there, words are taken one by one, for neither
normalisation nor pieces reach across white space.
"""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text import normalize_word
from data_prep.vocabulary import Vocabulary

MOST_WORDS = 1 << 18  # remembered before all are forgotten: about 600 bytes a word

_WORD = re.compile(r"\S+")


class PlacedTokens(NamedTuple):
    """The tokens of one text, T of them.

    Attributes:
        ids: uint16 (T,).
        starts, ends: int64 (T,), characters [start, end) of the text as it was given. They ascend, and include the
            accents behind a letter; tokens that come of one character share it. A word's mark alone has none: there
            start and end are equal.
    """

    ids: NDArray[np.uint16]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class PlacingEncoder:
    """Encodes texts with one vocabulary; what it remembers between calls decides nothing but how long they take."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._words: dict[str, PlacedTokens] = {}

    def encode(self, text: str) -> PlacedTokens:
        """The tokens of a text that is not normalised yet. A NUL character counts as a space."""
        if len(self._words) > MOST_WORDS:
            self._words.clear()
        parts, places = [_NO_TOKENS], [0]
        for match in _WORD.finditer(text.replace("\0", " ")):
            word = match[0]
            if word not in self._words:
                self._words[word] = self._place(word)
            parts.append(self._words[word])
            places.append(match.start())
        ids, starts, ends = (np.concatenate(arrays) for arrays in zip(*parts))
        shift = np.repeat(places, [len(part.ids) for part in parts])  # (T,)
        return PlacedTokens(ids, starts + shift, ends + shift)

    def _place(self, word: str) -> PlacedTokens:
        text, sources = normalize_word(word)
        ids, offsets = self._vocabulary.encode_with_offsets(text)
        # Where each source character ends: before the next one that anything is made of.
        following = sorted(set(sources))[1:] + [len(word)]
        end_of = dict(zip(sorted(set(sources)), following))
        starts = [sources[begin] if begin < len(sources) else len(word) for begin, _ in offsets]
        ends = [end_of[sources[end - 1]] if end > begin else start for start, (begin, end) in zip(starts, offsets)]
        return PlacedTokens(np.array(ids, np.uint16), np.array(starts, np.int64), np.array(ends, np.int64))


_NO_TOKENS = PlacedTokens(np.zeros(0, np.uint16), np.zeros(0, np.int64), np.zeros(0, np.int64))
