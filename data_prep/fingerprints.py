"""What makes two documents the same text: fingerprints that are equal, or equal in part, whatever was edited.

Exact: the hash of the normalised text. Near: the share of runs of words that two texts have in common (Jaccard
similarity of their shingles), estimated by MinHash (Broder, "On the resemblance and containment of documents", 1997).

Editions of one book differ in line ends, punctuation, front matter and spelling. So a word counts as its consonants
alone, those that spelling exchanges made one: "honour" and "honor", "vpon" and "upon", "publick" and "public" are the
same words. Of the words of a folio play 40 % are spelt otherwise than in a modern edition, and runs of four words as
they stand have a similarity of 0.20; of consonants, 0.60.
"""

import itertools
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
import rensa
import xxhash
from numpy.typing import NDArray

from data_prep.text import normalize

Method = Literal["none", "exact", "near"]

SHINGLE_WORDS = 4
# Locality-sensitive hashing: two texts of similarity s agree in all rows of a band, and so are compared, with
# probability 1 - (1 - s**ROWS)**BANDS: 0.95 at 0.4, above 0.9999 from 0.6 on, 0.002 at the 0.037 of unrelated novels.
BANDS, ROWS = 42, 3
# Of 26 novels and 84 plays no two that are not one text are more alike than 0.04, and no two editions less than 0.43;
# what lies between are selections of one poet's works. Short texts are often written after a pattern ("X is a 1921
# silent film directed by Y and starring Z"): they have to agree in nearly everything.
LONG_TEXT = 1000  # shingles
LONG_SIMILARITY, SHORT_SIMILARITY = 0.3, 0.8
DOCUMENTS_AT_ONCE = 4096
MOST_WORDS = 1 << 20  # remembered before they are forgotten: about 150 bytes each
_SEED = 1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that a run of words is hashed by its order, too

_SILENT = str.maketrans({**dict.fromkeys("aeiouvwyjh"), "c": "k", "q": "k", "z": "s"})
_DOUBLED = re.compile(r"([a-z])\1+")
_NO_WORD = re.compile(r"[\W_]+")
_DASH = re.compile("--+|[–—]")


class Fingerprints(NamedTuple):
    """Of D documents.

    keys: uint64[D, bands], documents that share one are compared. values: uint16[D, n], the share in which two
    documents agree is their similarity. sizes: int64[D], shingles of each; 0 where the values are all or nothing.
    """

    keys: NDArray[np.uint64]
    values: NDArray[np.uint16]
    sizes: NDArray[np.int64]


def bands(method: Method) -> int:
    """How many keys a document has."""
    return BANDS if method == "near" else 1


def skeleton(word: str) -> str:
    """What is left of a word when spelling does not count; "" where nothing is."""
    letters = _NO_WORD.sub("", normalize(word))
    return _DOUBLED.sub(r"\1", letters.translate(_SILENT))


class _Hashes(dict[str, int]):
    """Words as they stand in a text to the hashes of their skeletons; 0 for none."""

    def __missing__(self, word: str) -> int:
        bones = skeleton(word)
        value = self[word] = xxhash.xxh3_64_intdigest(bones.encode()) if bones else 0
        return value


class Fingerprinter:
    """Takes the fingerprints of documents. What it remembers between calls decides nothing but how long they take."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self._hashes = _Hashes()

    def of(self, texts: Iterable[str]) -> Fingerprints:
        """The fingerprints of un-normalised texts."""
        take = self._near if self.method == "near" else _exact
        rest = iter(texts)
        taken = [take(batch) for batch in iter(lambda: list(itertools.islice(rest, DOCUMENTS_AT_ONCE)), [])]
        return Fingerprints(*map(np.concatenate, zip(*taken)))

    def shingles(self, text: str) -> NDArray[np.uint64]:
        """The hash of each run of four words, in order; a shorter text is one run, as is one without words."""
        if len(self._hashes) > MOST_WORDS:
            self._hashes.clear()
        words = _DASH.sub(" ", text).split()
        hashes = np.fromiter(map(self._hashes.__getitem__, words), np.uint64, len(words))
        hashes = hashes[hashes != 0]  # (W,)
        if not len(hashes):
            return np.zeros(1, np.uint64)
        length = min(SHINGLE_WORDS, len(hashes))
        count = len(hashes) - length + 1
        runs = hashes[:count].copy()
        for offset in range(1, length):
            runs = runs * _MULTIPLIER + hashes[offset : offset + count]
        return runs

    def _near(self, texts: Iterable[str]) -> Fingerprints:
        sets = [self.shingles(text) for text in texts]
        sizes = np.array([len(one) for one in sets], np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)
        flat = np.concatenate([*sets, np.zeros(0, np.uint64)])
        matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(flat, offsets, BANDS * ROWS, _SEED)
        minima = np.array(matrix.to_rows(), np.uint32).reshape(len(sets), BANDS * ROWS)
        keys = np.zeros((len(sets), BANDS), np.uint64)
        for row in range(ROWS):
            keys = (keys ^ minima[:, row::ROWS]) * _MULTIPLIER
            keys ^= keys >> np.uint64(32)
        # Of 16 bits one in 65,536 agrees by chance (Li and König, "b-bit minwise hashing", WWW 2010).
        return Fingerprints(keys, minima.astype(np.uint16), sizes)


def _exact(texts: Iterable[str]) -> Fingerprints:
    digests = b"".join(xxhash.xxh3_128_digest(normalize(text).encode()) for text in texts)
    keys = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    return Fingerprints(keys[:, :1], np.frombuffer(digests, np.uint16).reshape(-1, 8), np.zeros(len(keys), np.int64))


def same(
    first: NDArray[np.uint16],
    second: NDArray[np.uint16],
    first_sizes: NDArray[np.int64],
    second_sizes: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which of P pairs are one text: values uint16[P, n] and sizes int64[P] of either document."""
    smaller = np.minimum(first_sizes, second_sizes)
    similarity = np.where(smaller >= LONG_TEXT, LONG_SIMILARITY, SHORT_SIMILARITY)
    return (first == second).mean(axis=1) >= np.where(smaller == 0, 1.0, similarity)
