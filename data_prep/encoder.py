"""Text to tokens faster than SentencePiece does it, by encoding each different word once.

Pieces never reach across a space, and neither does any step of the normalisation: the tokens of a sentence are those
of its words, one after the other. A text repeats its words, so nearly all of them are found in a table from raw word
to tokens, and the rest of the work is array arithmetic on a batch of sentences.

SentencePiece adds up scores in single precision over the whole sentence. Where two segmentations of a word are equal to
within the rounding of that sum, its choice depends on what stands before the word. The sum is large, and its rounding
coarse, in long sentences and behind an unknown character; and segmentations that are the same pieces in another order
("66" "6" and "6" "66") differ by rounding alone. Such sentences, few in any text, are given to SentencePiece whole.
"""

import contextlib
import gc
import itertools
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.text import normalize
from data_prep.vocabulary import UNK_ID, Vocabulary

MOST_WORDS = 1 << 20  # in the table before it is emptied: it takes about 200 bytes a word

LONG_SENTENCE = 256  # tokens

_REPETITION = re.compile(r"(.{1,4}?)\1\1")  # the least that two different pieces in either order can spell
_END = "\0"  # stands behind each sentence as a word of its own, number 0, without tokens


@contextlib.contextmanager
def without_cyclic_collection() -> Iterator[None]:
    """Ids come as lists, by the hundred thousand, of which none is part of a cycle: to look for cycles among them again
    and again takes a seventh of the time of `shards`."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _join(sentences: list[str]) -> str:
    """One text, without white space at its end: Arrow 26 looks one character beyond such."""
    return f" {_END} ".join([*sentences, ""]).rstrip(" ")


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
        self._ambiguous = np.zeros(1, np.bool_)  # (words known,) whether pieces of it may change places

    def encode(self, sentences: list[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Ids of sentences that are not normalised yet. A NUL character counts as a space.

        Returns:
            All ids one after the other, uint16, without special ones; and the number of ids of each sentence, int64,
            0 where nothing is left of it.
        """
        if len(self._numbers) > MOST_WORDS:
            self._forget()
        joined = _join(sentences)
        if joined.count(_END) > len(sentences):
            joined = _join([sentence.replace(_END, " ") for sentence in sentences])
        # Arrow splits at the same characters as str.split(), and makes no Python object of each word.
        split = pc.utf8_split_whitespace(pa.array([joined])).values.dictionary_encode()
        different = split.dictionary.to_pylist()
        numbers = np.fromiter(map(self._numbers.__getitem__, different), np.int64, len(different))  # (D,)
        self._learn()
        words = split.indices.to_numpy()  # (W,) each word of the batch as one of the D different ones
        lengths = self._lengths[numbers][words]  # (W,)
        ends = np.cumsum(lengths)  # (W,) where each word's tokens end in the batch
        # Token t of the batch is number t - (start of its word's tokens in the batch) of that word's.
        source = np.repeat(self._starts[numbers][words] - (ends - lengths), lengths)  # (T,)
        source += np.arange(len(source))
        last = np.flatnonzero((numbers == 0)[words])  # (sentences,) the word that ends each
        ids, counts = self._ids[source], np.diff(ends[last], prepend=0)
        whole = counts > LONG_SENTENCE  # (sentences,) those for SentencePiece
        whole[np.searchsorted(np.cumsum(counts), np.flatnonzero(ids == UNK_ID), side="right")] = True
        whole[np.searchsorted(last, np.flatnonzero(self._ambiguous[numbers][words]))] = True
        return self._encode_whole(sentences, np.flatnonzero(whole), ids, counts)

    def _encode_whole(
        self, sentences: list[str], chosen: NDArray[np.int64], ids: NDArray[np.uint16], counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """`ids` and `counts` with the tokens of the `chosen` sentences replaced by SentencePiece's."""
        if not len(chosen):
            return ids, counts
        new_ids, new_counts = self._vocabulary.encode_flat(
            [normalize(sentences[number].replace(_END, " ")) for number in chosen.tolist()]
        )
        ends = np.cumsum(counts)
        bounds = np.stack([ends[chosen] - counts[chosen], ends[chosen]], axis=1).flatten().tolist()
        edges = [0, *bounds, len(ids)]
        between = [ids[start:stop] for start, stop in zip(edges[::2], edges[1::2])]
        new = np.split(new_ids, np.cumsum(new_counts)[:-1])
        pieces = [piece for pair in itertools.zip_longest(between, new, fillvalue=ids[:0]) for piece in pair]
        counts[chosen] = new_counts
        return np.concatenate(pieces), counts

    def _learn(self) -> None:
        """Encodes the words that were numbered since the last time."""
        if not self._numbers.new:
            return
        normalized = [normalize(word) for word in self._numbers.new]
        ids, lengths = self._vocabulary.encode_flat(normalized)
        ambiguous = np.array([_REPETITION.search(word) is not None for word in normalized])
        self._ambiguous = np.concatenate([self._ambiguous, ambiguous])
        self._numbers.new.clear()
        self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(lengths) - lengths])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._ids = np.concatenate([self._ids, ids])
