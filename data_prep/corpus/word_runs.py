"""Reads texts as runs of words, by which documents are compared.

What counts of a word is told by a function that spells it, such as `skeleton`. Python would take longer to spell words
than `shards` takes to encode them. So the function only spells each character once, and makes tables of it. The words
of a whole text are then spelled and hashed by array arithmetic on the bytes of the text.
"""

import codecs
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
HashArray = NDArray[np.uint64]

_PIECE_CHARACTERS = 1 << 17  # spelled at once; the arrays then fit into the processor's cache
_DIVIDERS = "-–—/"
_HAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # a Chinese or Japanese character is a word
_GONE = 0xFF  # for a character that does not count; no text has this byte
_LETTERS = 8  # that one number holds
_MAX_LETTERS = 128  # of a word; in longer ones the rest does not count
_MASKS = np.array([(1 << 8 * letters) - 1 for letters in range(_LETTERS + 1)], np.uint64)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd; makes the hash of a run depend on the order of its words


class Runs(NamedTuple):
    """The runs of words of some consecutive texts, in order.

    Attributes:
        first: number of the first text.
        sizes: int64[T], the runs of each text.
        hashes: uint64[R], the hash of each run.
    """

    first: int
    sizes: IntArray
    hashes: HashArray


def hash_runs(words: HashArray, length: int) -> HashArray:
    """Returns the hash of each run of `length` words, in order, of the hashes of at least so many words."""
    count = len(words) - length + 1
    runs = words[:count].copy()
    for offset in range(1, length):
        runs *= _MULTIPLIER
        runs += words[offset : offset + count]
    return runs


class Letters(dict[int, str]):
    """Maps a character to what counts of it, for `str.translate`, by what `spell` makes of it; " " divides words."""

    def __init__(self, spell: Callable[[str], str]) -> None:
        super().__init__()
        self._spell = spell

    def __missing__(self, code: int) -> str:
        character = chr(code)
        letters = " " if character.isspace() or character in _DIVIDERS else self._spell(character).replace("ς", "σ")
        self[code] = f" {letters} " if _HAN.match(character) else letters
        return self[code]


class RunReader:
    """Reads texts as runs of `length` words; `spell` tells what counts of a word, "" for nothing.

    What counts of a word is that of its characters. Only of an ASCII letter and its double it can be the same.
    """

    def __init__(self, length: int, spell: Callable[[str], str]) -> None:
        self.length, self._letters = length, Letters(spell)
        ascii_codes = range(1, 128)
        spelled = bytes(ord(self._letters[code] or chr(_GONE)) for code in ascii_codes)
        self._table = b"\0" + spelled + bytes(range(128, 256))
        self._counts_once = np.array([code in ascii_codes and len(spell(2 * chr(code))) == 1 for code in range(256)])
        # Python encodes ASCII text fast, and calls this for each run of other characters.
        self._errors = f"{__name__}.{spell.__name__}"
        codecs.register_error(self._errors, self._spell_others)

    def _spell_others(self, error: UnicodeError) -> tuple[bytes, int]:
        assert isinstance(error, UnicodeEncodeError)
        return error.object[error.start : error.end].translate(self._letters).encode(), error.end

    def read(self, texts: Iterable[str]) -> Iterator[Runs]:
        """Yields the runs of batches of whole texts, which are numbered from 0."""
        batch: list[str] = []
        first = characters = 0
        for text in itertools.chain(texts, [None]):
            if batch and (text is None or characters >= _PIECE_CHARACTERS):
                yield self._runs(batch, first)
                first, batch, characters = first + len(batch), [], 0
            if text is not None:
                batch.append(text.replace("\0", " "))
                characters += len(text)

    def _runs(self, texts: list[str], first: int) -> Runs:
        words, ends = self._words("\0".join([*texts, ""]))
        counts = np.diff(ends, prepend=0)  # (T,) words of each text
        sizes = np.maximum(counts - self.length + 1, 0)
        if len(words) < self.length:
            return Runs(first, sizes, words[:0])
        numbers = np.repeat(np.arange(len(texts)), counts)  # (W,) the text of each word
        inside = numbers[: 1 - self.length or None] == numbers[self.length - 1 :]
        return Runs(first, sizes, hash_runs(words, self.length).compress(inside))

    def _words(self, joined: str) -> tuple[HashArray, IntArray]:
        """Returns the hashes of all words; and for each text, which \\0 ends, the number of words up to its end."""
        words, ends = [], []
        start = count = 0
        while start < len(joined):
            end = joined.find("\n", start + _PIECE_CHARACTERS) + 1 or len(joined)
            hashes, stops = self._words_of_piece(joined[start:end])
            words.append(hashes)
            ends.append(stops + count)
            start, count = end, count + len(hashes)
        return np.concatenate(words), np.concatenate(ends)

    def _words_of_piece(self, piece: str) -> tuple[HashArray, IntArray]:
        spelled = f" {piece}".encode("ascii", self._errors).translate(self._table)
        letters = np.frombuffer(spelled + b" " * _LETTERS, np.uint8)
        letters = letters.compress(letters != _GONE)
        doubles = np.flatnonzero(letters[1:] == letters[:-1]) + 1
        letters = np.delete(letters, doubles[self._counts_once[letters[doubles]]])  # (L,)
        gaps = letters <= ord(" ")
        edges = np.flatnonzero(gaps[1:] != gaps[:-1]) + 1
        starts, stops = edges[::2], edges[1::2]  # (W,)
        return _hash_words(letters, starts, stops), np.searchsorted(starts, np.flatnonzero(letters == 0))


def _hash_words(letters: NDArray[np.uint8], starts: IntArray, stops: IntArray) -> HashArray:
    """Returns the hashes of the words that stand in `letters`, at least 8 letters before its end; uint64[W]."""
    eight = np.ndarray(len(letters) - _LETTERS + 1, "<u8", letters, strides=(1,))  # the letters from each place on
    sizes = stops - starts
    hashes = eight[starts] & _MASKS.take(sizes, mode="clip")
    for place in range(_LETTERS, _MAX_LETTERS, _LETTERS):
        longer = np.flatnonzero(sizes > place)
        if not len(longer):
            break
        rest = eight[starts[longer] + place] & _MASKS.take(sizes[longer] - place, mode="clip")
        hashes[longer] = hashes[longer] * _MULTIPLIER + rest
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint64(32)
    return hashes
