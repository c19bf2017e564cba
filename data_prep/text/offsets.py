"""Encodes a text, and tells which characters of the un-normalised text each token comes from.

The tokens are those of `data_prep.text.encoder`, which pre-training reads. Words are encoded one by one, as there.
"""

import numpy as np

from data_prep.text.vocabulary import TokensWithOffsets, Vocabulary

MAX_WORDS = 1 << 18  # in the cache before it is emptied; a word takes about 600 bytes


class OffsetEncoder:
    """Encodes texts with one vocabulary. Its cache of words affects the speed only."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._words: dict[str, TokensWithOffsets] = {}

    def encode(self, text: str) -> TokensWithOffsets:
        """Returns the tokens of an un-normalised text."""
        if len(self._words) > MAX_WORDS:
            self._words.clear()
        parts, places = [_NO_TOKENS], [0]
        for match in self._vocabulary.word.finditer(text):
            word = match[0]
            if word not in self._words:
                self._words[word] = self._vocabulary.encode_word(word)
            parts.append(self._words[word])
            places.append(match.start())
        ids, starts, ends = (np.concatenate(arrays) for arrays in zip(*parts))
        shift = np.repeat(places, [len(part.ids) for part in parts])  # (T,)
        return TokensWithOffsets(ids, starts + shift, ends + shift)


_NO_TOKENS = TokensWithOffsets(np.zeros(0, np.uint16), np.zeros(0, np.int64), np.zeros(0, np.int64))
