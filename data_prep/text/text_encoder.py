"""Encodes text faster than the vocabulary's library, with the same result, by encoding each different word once.

No piece crosses a space, and no step of the normalisation does. So the tokens of a sentence are those of its words, one
after the other. A text repeats its words, so a table from raw word to tokens contains nearly all of them. The rest is
array arithmetic on many sentences at once.

SentencePiece has an exception. It adds up scores over the whole sentence in fp32. If two segmentations of a word
differ by less than the rounding of that sum, the choice depends on the text before the word. The rounding is coarse in
long sentences and after an unknown character. And segmentations into the same pieces in another order ("66" "6" and "6"
"66") differ by rounding alone. Sentences of these three kinds are rare; SentencePiece encodes them whole.
"""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.text.vocabulary import TokensWithOffsets, Vocabulary

MAX_WORDS = 1 << 20  # in the table before it is emptied; a word takes about 200 bytes
MAX_PLACED_WORDS = 1 << 18  # in that of `OffsetEncoder`; a word takes about 600 bytes

LONG_SENTENCE = 256  # tokens; SentencePiece encodes longer sentences whole

_END = "\0"  # follows each sentence as a word, which has the number 0 and no tokens


class _Numbers(dict[str, int]):
    """Numbers words in the order of their first look-up, and lists the new ones in `new`."""

    def __init__(self) -> None:
        super().__init__({_END: 0})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


class Encoder:
    """Encodes sentences with one vocabulary. Its table of words affects the speed only. Only one thread may use it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._unknown = vocabulary.unknown()
        self._forget()

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._ids = np.zeros(0, np.uint16)  # ids of all known words, one after the other
        self._starts = np.zeros(1, np.int64)  # (words known,) index of each word's first id
        self._lengths = np.zeros(1, np.int64)  # (words known,) number of each word's ids
        self._ambiguous = np.zeros(1, np.bool_)  # (words known,) whether the sentence decides its pieces

    def encode(self, sentences: list[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Encodes sentences that are not normalised.

        Returns all ids one after the other, uint16, without special tokens; and the number of ids of each sentence,
        int64, which is 0 if normalisation leaves nothing of it.
        """
        if len(self._numbers) > MAX_WORDS:
            self._forget()
        words = self._number_words(sentences)  # (W,) rows of the table; 0 for the end of a sentence
        lengths = self._lengths[words]  # (W,)
        ends = np.cumsum(lengths)  # (W,) end of each word's tokens in the result
        # The tokens of a word are contiguous in the table and in the result. So each token stands in the table where it
        # stands in the result, plus the distance of its word in the two.
        distances = self._starts[words] - (ends - lengths)  # (W,)
        ids = self._ids[np.repeat(distances, lengths) + np.arange(lengths.sum())]  # (T,)
        last = np.flatnonzero(words == 0)  # (sentences,) the word _END after each
        counts = np.diff(ends[last], prepend=0)  # (sentences,)
        if self.vocabulary.words_stand_alone:
            return ids, counts
        # The sentences that SentencePiece encodes whole: long ones, those with an unknown or with an ambiguous word.
        whole = counts > LONG_SENTENCE  # (sentences,)
        whole[np.searchsorted(np.cumsum(counts), np.flatnonzero(self._unknown[ids]), side="right")] = True
        whole[np.searchsorted(last, np.flatnonzero(self._ambiguous[words]))] = True
        chosen = np.flatnonzero(whole)
        return _replace(ids, counts, chosen, self.vocabulary.encode([sentences[n] for n in chosen.tolist()]))

    def _number_words(self, sentences: list[str]) -> NDArray[np.int64]:
        """The row in the table of each word, and of an `_END` after each sentence, (W,). Adds the new words to it."""
        # With white space at its end, Arrow 26 would read one character too many.
        content = f" {_END} ".join([*self.vocabulary.clean(sentences), ""]).rstrip(" ").encode()
        ends = np.array([0, len(content)], np.int32)
        # `pa.array` would import pandas, which takes longer than a small job.
        text = pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(content))
        # Arrow splits at the same characters as str.split(), without a Python object for each word.
        split = pc.utf8_split_whitespace(text).values.dictionary_encode()
        different = split.dictionary.to_pylist()
        numbers = np.fromiter(map(self._numbers.__getitem__, different), np.int64, len(different))  # (D,)
        if self._numbers.new:
            ids, lengths, ambiguous = self.vocabulary.encode_words(self._numbers.new)
            self._numbers.new.clear()
            self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(lengths) - lengths])
            self._ids, self._lengths = np.concatenate([self._ids, ids]), np.concatenate([self._lengths, lengths])
            self._ambiguous = np.concatenate([self._ambiguous, ambiguous])
        return numbers[np.from_dlpack(split.indices)]

    def encode_for_use(self, texts: list[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Encodes texts that a model is used on, in which a name of a special piece is that piece."""
        chosen = np.flatnonzero([self.vocabulary.special.are_in(text) for text in texts])
        new = [self.vocabulary.encode_for_use(texts[number]) for number in chosen.tolist()]
        return _replace(*self.encode(texts), chosen, new)


def _replace(
    ids: NDArray[np.uint16], counts: NDArray[np.int64], chosen: NDArray[np.int64], new: list[list[int]]
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Replaces the tokens of the `chosen` sentences by `new` ones. Changes `counts`."""
    if not len(chosen):
        return ids, counts
    ends = np.cumsum(counts)
    bounds = np.stack([ends[chosen] - counts[chosen], ends[chosen]], axis=1).flatten().tolist()
    edges = [0, *bounds, len(ids)]
    between = [ids[start:stop] for start, stop in zip(edges[::2], edges[1::2])]
    made = [np.array(sentence, np.uint16) for sentence in new]
    arrays = [array for pair in itertools.zip_longest(between, made, fillvalue=ids[:0]) for array in pair]
    counts[chosen] = list(map(len, new))
    return np.concatenate(arrays), counts


class OffsetEncoder:
    """Encodes texts word by word as `Encoder.encode_for_use` does, and tells which characters each token comes from."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._words: dict[str, TokensWithOffsets] = {}
        self._nothing = vocabulary.encode_word("")

    def encode(self, text: str) -> TokensWithOffsets:
        """Returns the tokens of an un-normalised text."""
        if len(self._words) > MAX_PLACED_WORDS:
            self._words.clear()
        parts, places = [self._nothing], [0]
        for match in self._vocabulary.word.finditer(text):
            word = match[0]
            if word not in self._words:
                self._words[word] = self._vocabulary.encode_word(word)
            parts.append(self._words[word])
            places.append(match.start())
        ids, starts, ends = (np.concatenate(arrays) for arrays in zip(*parts))
        shift = np.repeat(places, [len(part.ids) for part in parts])  # (T,)
        return TokensWithOffsets(ids, starts + shift, ends + shift)
