"""Encodes a text, and tells which characters of the un-normalised text each token comes from.

The tokens are those of `data_prep.text.encoder`, which pre-training reads. Words are encoded one by one, as there,
because neither normalisation nor pieces cross white space.
"""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.normalization import normalize_word
from data_prep.text.vocabulary import Vocabulary

MAX_WORDS = 1 << 18  # in the cache before it is emptied; a word takes about 600 bytes

_WORD = re.compile(r"\S+")


class TokensWithOffsets(NamedTuple):
    """The tokens of one text, T of them.

    Attributes:
        ids: uint16 (T,).
        starts, ends: int64 (T,), each token comes from the characters [start, end) of the un-normalised text. They
            ascend. The accents after a letter are included. Tokens that come from one character share it. A piece that
            is the word-start mark alone comes from none: its start and end are equal.
    """

    ids: NDArray[np.uint16]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class OffsetEncoder:
    """Encodes texts with one vocabulary. Its cache of words affects the speed only."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._words: dict[str, TokensWithOffsets] = {}

    def encode(self, text: str) -> TokensWithOffsets:
        """Returns the tokens of an un-normalised text. A NUL character counts as a space."""
        if len(self._words) > MAX_WORDS:
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
        return TokensWithOffsets(ids, starts + shift, ends + shift)

    def _place(self, word: str) -> TokensWithOffsets:
        text, sources = normalize_word(word, self._vocabulary.normalization)
        ids, offsets = self._vocabulary.encode_with_offsets(text)
        # A source character ends before the next one that the result contains.
        following = sorted(set(sources))[1:] + [len(word)]
        end_of = dict(zip(sorted(set(sources)), following))
        starts = [sources[begin] if begin < len(sources) else len(word) for begin, _ in offsets]
        ends = [end_of[sources[end - 1]] if end > begin else start for start, (begin, end) in zip(starts, offsets)]
        return TokensWithOffsets(np.array(ids, np.uint16), np.array(starts, np.int64), np.array(ends, np.int64))


_NO_TOKENS = TokensWithOffsets(np.zeros(0, np.uint16), np.zeros(0, np.int64), np.zeros(0, np.int64))
