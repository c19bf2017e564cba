"""Reads texts as runs of words, by which documents are compared.

Of a word its `skeleton` counts. To call that function for each word would take as long as all the rest of `shards`. So
it is called once for each character, and gives a table. With this table the words of long pieces of text are spelled
and hashed by array arithmetic on bytes.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.normalize import normalize

IntArray = NDArray[np.int64]
HashArray = NDArray[np.uint64]

_PIECE_CHARACTERS = 1 << 17  # spelled at once; the arrays then fit into the processor's cache
_DIVIDERS = "-–—/"
_BLANK = re.compile(r"\s")
_HAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # a Chinese or Japanese character is a word
_FEW_OTHERS = 0.1  # of the characters; with more it is faster to spell all of them one by one
_GONE = 0xFF  # for a character that does not count; no text has this byte
_LETTERS = 8  # that one number holds
_MAX_LETTERS = 128  # of a word; in longer ones the rest does not count
_MASKS = np.array([(1 << 8 * letters) - 1 for letters in range(_LETTERS + 1)], np.uint64)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd; makes the hash of a run depend on the order of its words
_SILENT = str.maketrans({**dict.fromkeys("aeiouvwyjh"), "c": "k", "q": "k", "z": "s"})
_DOUBLED = re.compile(r"([a-z])\1+")
_NO_WORD = re.compile(r"[\W_]+")


def skeleton(word: str) -> str:
    """Returns the consonants of a word, normalised; those that spellings exchange are merged. "" if there are none."""
    return _DOUBLED.sub(r"\1", _NO_WORD.sub("", normalize(word)).translate(_SILENT))


class Runs(NamedTuple):
    """The runs of words of some texts, in order, as if these were one text."""

    length: int  # words in a run
    ends: IntArray  # (T,) the number of words up to the end of each text
    hashes: list[HashArray]  # of each run, in several arrays. Run n begins with word n; it may reach into the next text

    @property
    def sizes(self) -> IntArray:
        """The number of runs inside each text, int64[T]."""
        return np.maximum(np.diff(self.ends, prepend=0) - self.length + 1, 0)

    def texts_of(self, numbers: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """Returns the text in which each run begins, and whether it is inside this text."""
        texts = np.searchsorted(self.ends, numbers, side="right")
        return texts, numbers + self.length <= self.ends[texts]


def hash_runs(words: HashArray, length: int) -> HashArray:
    """Returns the hash of each run of `length` words, in order, of the hashes of at least so many words."""
    count = len(words) - length + 1
    runs = words[:count].copy()
    for offset in range(1, length):
        runs *= MULTIPLIER
        runs += words[offset : offset + count]
    return runs


class _Letters(dict[int, str]):
    """Maps a character to what counts of it, for `str.translate`; " " divides words, and NUL ends a text."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        divides = character.isspace() or character in _DIVIDERS
        letters = " " if divides else skeleton(character).replace("ς", "σ")  # the small letters of one capital
        self[code] = f" {letters} " if _HAN.match(character) else letters
        return self[code]


_SPELLED = _Letters({0: "\0"})
_TABLE = bytes(ord(_SPELLED[code] or chr(_GONE)) for code in range(128)) + bytes(range(128, 256))


def _spell(piece: str) -> bytes:
    """What counts of the characters, as UTF-8; that of ASCII is left to `_TABLE`."""
    if piece.isascii():
        return piece.encode()
    characters = np.frombuffer(bytearray(piece, "utf-32-le", "surrogatepass"), np.uint32)
    others = np.flatnonzero(characters > 0x7F)
    if len(others) < _FEW_OTHERS * len(characters):
        codes, places = np.unique(characters[others], return_inverse=True)
        letters = [_SPELLED[code].encode() or bytes([_GONE]) for code in codes.tolist()]
        characters[others] = np.array([each[0] for each in letters], np.uint32)[places]
        spelled, parts, begin = characters.astype(np.uint8).tobytes(), list[bytes](), 0
        is_longer = np.array([len(each) > 1 for each in letters])[places]
        for at, place in zip(others[is_longer].tolist(), places[is_longer].tolist()):
            parts += (spelled[begin:at], letters[place])
            begin = at + 1
        return b"".join([*parts, spelled[begin:]])
    return piece.translate(_SPELLED).encode()


def read_runs(texts: Iterable[str], length: int) -> Runs:
    """Returns the runs of `length` words of texts."""
    ends, hashes = [np.zeros(0, np.int64)], []
    rest, count = np.zeros(0, np.uint64), 0  # the words of runs that are not complete, and the number of all words
    for piece in _pieces(texts):
        words, stops = _words(piece)
        ends.append(count + stops)
        count += len(words)
        words = np.concatenate([rest, words])
        if len(words) >= length:
            hashes.append(hash_runs(words, length))
        rest = words[max(0, len(words) - length + 1) :]
    return Runs(length, np.concatenate(ends), hashes)


def _words(piece: str) -> tuple[HashArray, IntArray]:
    """Returns the hashes of all words; and for each text that ends here the number of words up to there.

    All that counts of the words is spelled as bytes first. White space, dividers and the ends of texts (\\0) become
    bytes up to " ", and what does not count becomes `_GONE`, which is removed.
    """
    # Two blanks before: the next step removes the first byte, and a gap must precede the first word. Blanks behind:
    # `_hash_words` reads `_LETTERS` bytes from each place on.
    letters = np.frombuffer(b"  " + _spell(piece).translate(_TABLE) + b" " * _LETTERS, np.uint8)
    letters = letters.compress(letters != _GONE)
    differ = letters[1:] != letters[:-1]  # doubled letters count once
    is_no_letter = letters[1:] - ord("a") > 25  # uint8: bytes below "a" wrap around
    letters = letters[1:].compress(differ | is_no_letter)
    gaps = letters <= ord(" ")
    edges = np.flatnonzero(gaps[1:] != gaps[:-1]) + 1  # where a word begins, where it ends, and so on
    starts, stops = edges[::2], edges[1::2]  # (W,)
    return _hash_words(letters, starts, stops), np.searchsorted(starts, np.flatnonzero(letters == 0))


def _pieces(texts: Iterable[str]) -> Iterator[str]:
    """Yields texts, each with \\0 at its end, in pieces that end with white space or a text."""
    waiting: list[str] = []
    characters = 0
    for text in itertools.chain(texts, [None]):
        if text is None or characters >= _PIECE_CHARACTERS:
            joined, start = "".join(waiting), 0
            size = len(joined) // max(1, len(joined) // _PIECE_CHARACTERS) + 1
            while start < len(joined):
                blank = _BLANK.search(joined, start + size)
                end = blank.end() if blank else len(joined)
                yield joined[start:end]
                start = end
            waiting, characters = [], 0
        if text is not None:
            waiting += (text.replace("\0", " "), "\0")
            characters += len(text)


def _hash_words(letters: NDArray[np.uint8], starts: IntArray, stops: IntArray) -> HashArray:
    """Returns the hashes of the words that stand in `letters`, at least 8 letters before its end; uint64[W]."""
    eight = np.ndarray(len(letters) - _LETTERS + 1, "<u8", letters, strides=(1,))  # the letters from each place on
    sizes = stops - starts
    hashes = eight.take(starts) & _MASKS.take(sizes, mode="clip")
    for place in range(_LETTERS, _MAX_LETTERS, _LETTERS):
        longer = np.flatnonzero(sizes > place)
        if not len(longer):
            break
        rest = eight.take(starts[longer] + place) & _MASKS.take(sizes[longer] - place, mode="clip")
        hashes[longer] = hashes[longer] * MULTIPLIER + rest
    hashes *= MULTIPLIER
    hashes ^= hashes >> np.uint64(32)
    return hashes
