"""Negative second segments for next-sentence prediction: each is the B of another document's pair."""

import numpy as np
from numpy.typing import NDArray

from data_prep.format.shards import ShardSet

DRAWS = 15
"""Random numbers for each pair: places to look for a partner."""
_ROWS_PER_DRAW = 4  # rows to look through at each place; they are neighbours on disk

Segment = NDArray[np.uint16]
"""Tokens of one text segment, (n,)."""


def draw_partners(
    shards: ShardSet,
    documents: NDArray[np.int64],
    whole: NDArray[np.int64],
    cut: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    continues_word: NDArray[np.bool_],
) -> list[Segment | None]:
    """Draws a negative B for each of Q pairs. None if no draw finds one.

    A negative B matches the true B's boundaries and length; otherwise they would leak the label:

    - It is the second segment of another pair, so it begins as a true B does.
    - If the true B ends inside a sentence, the negative B is cut to exactly its length. A true B is cut before a word.
      So is the negative B, and inside its own last sentence, if a draw finds one that fits.
    - If the true B ends with a sentence, as at the end of a document, so does the negative B. It is the longest one
      drawn that is not longer than the true B.

    The draws fail only in a set with very few documents or pairs. The pair then keeps its true B.

    Args:
        documents: (Q,) each pair's document.
        whole: (Q,) tokens of the true B's whole sentences.
        cut: (Q,) tokens of the sentence that is cut at the end of the true B; 0 if none is.
        uniforms: (Q, DRAWS) random numbers.
        continues_word: (V,) True for pieces that continue a word.
    """
    length = whole + cut
    # How well a segment suits, and so which is taken: the first one of those that suit best.
    perfect = np.where(cut > 0, 4, length)
    best = np.zeros(len(length), dtype=np.int64)
    partners: list[Segment | None] = [None] * len(length)
    firsts = (uniforms * len(shards)).astype(np.int64)  # (Q, DRAWS)
    # Later draws are only looked at if those before found no perfect segment.
    for begin, end in ((0, 2), (2, 7), (7, DRAWS)):
        asking = np.flatnonzero(best < perfect)
        if not asking.size:
            break
        # (searches, draws, rows of a draw)
        places = (firsts[asking, begin:end, None] + np.arange(_ROWS_PER_DRAW)) % len(shards)
        found = shards.rows(places.reshape(-1))
        pairs_of = found.pairs.reshape(len(asking), -1).sum(axis=1)  # of each search
        search = np.repeat(asking, pairs_of)  # (P,)
        ends = np.cumsum(np.stack(found.parts, axis=1)).reshape(-1, 4)  # (P, 4) where each part ends
        start, middle, last = ends[:, 1], ends[:, 2], ends[:, 3]  # of b and trail
        stop = start + length[search]  # of a negative B with exactly the length
        behind = found.tokens[np.minimum(stop, len(found.tokens) - 1)]  # the token behind the cut, (P,)
        before_word = (stop == last) | ~continues_word[behind]
        by_cut = np.where(stop <= last, 1 + 2 * before_word + (middle < stop), 0)
        by_length = np.where(middle <= stop, middle - start, 0)
        score = np.where(cut[search] > 0, by_cut, by_length)
        score[(found.documents == documents[search]) | (start == middle)] = 0
        # The first of the largest scores of each search, as one number.
        ranked = score * len(score) + np.arange(len(score))[::-1]  # (P,)
        some = pairs_of > 0
        top = np.maximum.reduceat(ranked, (np.cumsum(pairs_of) - pairs_of)[some])
        for number, place in zip(asking[some].tolist(), (len(score) - 1 - top % len(score)).tolist()):
            if score[place] > best[number]:
                best[number] = score[place]
                partners[number] = found.tokens[start[place] : (stop if cut[number] else middle)[place]].copy()
    return partners
