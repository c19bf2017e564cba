"""Text to tokens faster than SentencePiece does it, by encoding each different word once.

Pieces never reach across a space, and neither does any step of the normalisation: the tokens of a sentence are those
of its words, one after the other. A text repeats its words, so nearly all of them are found in a table from raw word
to tokens, and the rest of the work is array arithmetic on a batch of sentences. Where two segmentations of a word have
scores equal to within rounding, SentencePiece's choice can depend on what stands before the word, and this one cannot:
that was seen in 3 of 321,619 sentences.
"""

import numpy as np
from numpy.typing import NDArray

from data_prep.text import normalize
from data_prep.vocabulary import Vocabulary

MOST_WORDS = 1 << 20  # in the table before it is emptied: it takes about 200 bytes a word

_END = "\0"  # stands behind each sentence as a word of its own, number 0, without tokens


class _Numbers(dict[str, int]):
    """Numbers words in the order in which they are first looked up, and lists the new ones."""

    def __init__(self) -> None:
        super().__init__({_END: 0})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


class Encoder:
    """Normalises and encodes sentences with one vocabulary.

    What it remembers between calls decides nothing but how long they take. One thread at a time may use it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._forget()

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._ids = np.zeros(0, np.uint16)  # of all known words, one after the other
        self._starts = np.zeros(1, np.int64)  # (words known,) where each word's ids start in it
        self._lengths = np.zeros(1, np.int64)  # (words known,) how many they are

    def encode(self, sentences: list[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Ids of sentences that are not normalised yet. A NUL character counts as a space.

        Returns:
            All ids one after the other, uint16, without special ones; and the number of ids of each sentence, int64,
            0 where nothing is left of it.
        """
        if len(self._numbers) > MOST_WORDS:
            self._forget()
        joined = f" {_END} ".join([*sentences, ""])
        if joined.count(_END) > len(sentences):
            joined = f" {_END} ".join([*(sentence.replace(_END, " ") for sentence in sentences), ""])
        split = joined.split()
        words = np.fromiter(map(self._numbers.__getitem__, split), np.int64, len(split))  # (W,)
        self._learn()
        lengths = self._lengths[words]  # (W,)
        ends = np.cumsum(lengths)  # (W,) where each word's tokens end in the batch
        # Token t of the batch is number t - (start of its word's tokens in the batch) of that word's.
        source = np.repeat(self._starts[words] - (ends - lengths), lengths)  # (T,)
        source += np.arange(len(source))
        return self._ids[source], np.diff(ends[words == 0], prepend=0)

    def _learn(self) -> None:
        """Encodes the words that were numbered since the last time."""
        if not self._numbers.new:
            return
        ids, lengths = self._vocabulary.encode_flat([normalize(word) for word in self._numbers.new])
        self._numbers.new.clear()
        self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(lengths) - lengths])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._ids = np.concatenate([self._ids, ids])
