"""Fingerprints of documents, by which duplicates are recognised.

Method "exact": the hash of the normalised text. Method "near": the fraction of runs of words that two texts have in
common (the Jaccard similarity of their shingles), estimated by MinHash (Broder, "On the resemblance and containment of
documents", 1997).

Editions of one book differ in line ends, punctuation, front matter and spelling. So "near" compares the consonants of
words only, and merges consonants that spellings exchange. "honour" and "honor", "vpon" and "upon", "publick" and
"public" are then equal. A folio play spells 40 % of its words differently from a modern edition. With whole words the
similarity of the two is 0.20, with consonants 0.60.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import rensa
import xxhash
from numpy.typing import NDArray

from data_prep.corpus.word_runs import MULTIPLIER, hash_runs, read_runs
from data_prep.text.normalize import normalize

Method = Literal["none", "exact", "near"]

SHINGLE_WORDS = 4
# Locality-sensitive hashing: texts that agree in all rows of a band are compared (`dedup.equal_pairs`). With similarity
# s the probability of two is 1 - (1 - s**ROWS)**BANDS: 0.94 at 0.4, above 0.9999 from 0.6 on, 0.002 at 0.037
# (unrelated novels).
BANDS, ROWS = 42, 3
# Measured on 26 novels and 84 plays: different texts have a similarity of at most 0.04, editions of one text of at
# least 0.43; selections of one poet's works lie between. Short texts often follow a pattern ("X is a 1921 silent film
# directed by Y and starring Z"), so they must agree in nearly everything.
LONG_TEXT = 1000  # shingles
LONG_SIMILARITY, SHORT_SIMILARITY = 0.3, 0.8
MAX_DOCUMENTS_IN_MEMORY = 4096  # fingerprinted in one call
_SEED = 1


class Fingerprints(NamedTuple):
    """The fingerprints of D documents."""

    keys: NDArray[np.uint64]  # (D, bands); documents that share a key are compared
    values: NDArray[np.uint16]  # (D, n); the fraction of equal values of two documents is their similarity
    sizes: NDArray[np.int64]  # (D,) shingles of each; 0 with the method "exact", where all values must be equal


def bands(method: Method) -> int:
    """Returns the number of keys of a document."""
    return BANDS if method == "near" else 1


def fingerprints_of(texts: Iterable[str], method: Method) -> Fingerprints:
    """Returns the fingerprints of un-normalised texts."""
    take, rest = _near if method == "near" else _exact, iter(texts)
    taken = [take(group) for group in iter(lambda: list(itertools.islice(rest, MAX_DOCUMENTS_IN_MEMORY)), [])]
    return Fingerprints(*map(np.concatenate, zip(*taken)))


def _shingles(texts: Sequence[str]) -> list[NDArray[np.uint64]]:
    """Returns for each text the hash of each run of four words, in order, uint64.

    A shorter text has one hash, that of all its characters: few of them would be left, or none (emoji, vowels).
    """
    runs = read_runs(texts, 1)
    words = np.concatenate([*runs.hashes, np.zeros(0, np.uint64)])
    return [
        hash_runs(part, SHINGLE_WORDS)
        if len(part) >= SHINGLE_WORDS
        else np.array([xxhash.xxh3_64_intdigest(normalize(text).encode())], np.uint64)
        for text, part in zip(texts, np.split(words, runs.ends[:-1]))
    ]


def _near(texts: Sequence[str]) -> Fingerprints:
    sets = _shingles(texts)
    sizes = np.array([len(shingles) for shingles in sets], np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)
    flat = np.concatenate([*sets, np.zeros(0, np.uint64)])
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(flat, offsets, BANDS * ROWS, _SEED)
    minima = np.array(matrix.to_rows(), np.uint32).reshape(len(sets), BANDS * ROWS)
    keys = np.zeros((len(sets), BANDS), np.uint64)
    for row in range(ROWS):
        keys = (keys ^ minima[:, row::ROWS]) * MULTIPLIER
        keys ^= keys >> np.uint64(32)
    # Two different 16-bit values agree by chance once in 65,536 (Li and König, "b-bit minwise hashing", WWW 2010).
    return Fingerprints(keys, minima.astype(np.uint16), sizes)


def _exact(texts: Sequence[str]) -> Fingerprints:
    digests = b"".join(xxhash.xxh3_128_digest(normalize(text).encode()) for text in texts)
    keys = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    return Fingerprints(keys[:, :1], np.frombuffer(digests, np.uint16).reshape(-1, 8), np.zeros(len(keys), np.int64))


def same(values: NDArray[np.uint16], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns which of P pairs are duplicates, bool[P], by the values uint16[P, 2, n] and sizes int64[P, 2] of both."""
    smaller = sizes.min(axis=1)
    similarity = np.where(smaller >= LONG_TEXT, LONG_SIMILARITY, SHORT_SIMILARITY)
    return (values[:, 0] == values[:, 1]).mean(axis=1) >= np.where(smaller == 0, 1.0, similarity)
