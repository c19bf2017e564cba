"""Encodes text faster than the vocabulary's library, by encoding each different word once.

No piece crosses a space, and no step of the normalisation does. So the tokens of a sentence are those of its words, one
after the other. A text repeats its words, so a table from raw word to tokens contains nearly all of them. The rest is
array arithmetic on many sentences at once.

SentencePiece itself adds up scores over a whole sentence in fp32. So of a word with two segmentations whose scores are
equal up to rounding ("66" "6" and "6" "66"), it may choose another one behind other text. Here the word alone decides.
"""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.text.vocabulary import TokensWithOffsets, Vocabulary, flatten

MAX_WORDS = 1 << 20  # in the table before it is emptied; a word takes about 200 bytes
MAX_PLACED_WORDS = 1 << 18  # in that of `OffsetEncoder`; a word takes about 600 bytes
FREQUENT_WORDS = 1 << 16  # about so many of the first words are looked up by Arrow, which is faster

_END = "\0"  # follows each sentence as a word, which has the number 0 and no tokens


def _strings(text: str) -> pa.StringArray:
    """An array of one text. `pa.array` would import pandas, which takes longer than a small job."""
    content = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(content)], np.int32)), pa.py_buffer(content))


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
        self._forget()

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._frequent = _strings(_END)  # the first words by number
        self._ids = np.zeros(0, np.uint16)  # ids of all known words, one after the other
        self._starts = np.zeros(1, np.int64)  # (words known,) index of each word's first id
        self._lengths = np.zeros(1, np.int64)  # (words known,) number of each word's ids

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
        places = np.repeat(self._starts[words] - (ends - lengths), lengths)  # (T,)
        places += np.arange(len(places))
        ids = self._ids.take(places)  # (T,)
        last = np.flatnonzero(words == 0)  # (sentences,) the word _END after each
        return ids, np.diff(ends[last], prepend=0)

    def _number_words(self, sentences: list[str]) -> NDArray[np.int64]:
        """The row in the table of each word, and of an `_END` after each sentence, (W,). Adds the new words to it."""
        # With white space at its end, Arrow 26 would read one character too many.
        content = f" {_END} ".join([*self.vocabulary.clean(sentences), ""]).rstrip(" ")
        # Arrow splits at the same characters as str.split(), without a Python object for each word.
        split = pc.utf8_split_whitespace(_strings(content)).values.dictionary_encode()
        found = pc.index_in(split.dictionary, value_set=self._frequent)  # (D,) numbers, null where a word is not there
        rest = split.dictionary.filter(found.is_null())
        if len(self._frequent) < FREQUENT_WORDS:  # so far it has all known words, and all of the rest are new
            self._frequent = pa.concat_arrays([self._frequent, rest])
        numbers = np.from_dlpack(found.fill_null(-1)).astype(np.int64)  # (D,)
        numbers[numbers < 0] = list(map(self._numbers.__getitem__, rest.to_pylist()))
        if self._numbers.new:
            ids, lengths = flatten(self.vocabulary.encode(self._numbers.new))
            self._numbers.new.clear()
            self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(lengths) - lengths])
            self._ids, self._lengths = np.concatenate([self._ids, ids]), np.concatenate([self._lengths, lengths])
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
