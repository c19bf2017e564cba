"""n-gram whole-word masks (paper, section 3.1 "n-gram masking" and equation 1; Joshi et al., SpanBERT).

15 % of a row's tokens are predicted, in spans of n whole words with p(n) proportional to 1/n for n = 1..3. Of the
predicted tokens 80 % become [MASK], 10 % a random token and 10 % stay as they are, decided token by token.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MASKED_SHARE = 0.15
MAX_NGRAM = 3
# Cumulative p(n) for n = 1..3: 6/11, 9/11, 1.
_NGRAM_CDF = np.cumsum(1.0 / np.arange(1, MAX_NGRAM + 1)) / np.sum(1.0 / np.arange(1, MAX_NGRAM + 1))


def max_predictions(sequence_length: int) -> int:
    """Size of the block of predictions that every row of `sequence_length` positions carries: 77 of 512."""
    return max(1, round(MASKED_SHARE * sequence_length))


class Words(NamedTuple):
    """The words of a row, in order. An n-gram lies within one segment: it never spans A and B, or two pairs."""

    starts: NDArray[np.int64]  # (W,) position of each word's first token
    lengths: NDArray[np.int64]  # (W,) its tokens
    segments: NDArray[np.int64]  # (W,) number of the segment that it stands in


def find_words(token_ids: NDArray[np.int64], segments: NDArray[np.int64], continues_word: NDArray[np.bool_]) -> Words:
    """Finds the words of a row.

    Args:
        token_ids: (T,) the row's tokens.
        segments: (T,) number of the segment of each token, ascending; -1 on [CLS], [SEP] and padding.
        continues_word: (V,) True for pieces that are the inside of a word.
    """
    inside = segments >= 0
    previous = np.concatenate(([-1], segments[:-1]))
    # A word that a segment border cuts in two counts as two: its halves stand in different segments.
    begins = inside & (~continues_word[token_ids] | (segments != previous))
    starts = np.flatnonzero(begins)
    breaks = np.flatnonzero(begins | ~inside)  # every position at which a word cannot go on
    ends = np.append(breaks, len(token_ids))[np.searchsorted(breaks, starts, side="right")]
    return Words(starts, ends - starts, segments[starts])


class Span(NamedTuple):
    """An n-gram to predict: `words` whole words in `tokens` tokens from position `start` on, of the `drawn` words that
    its length was drawn as."""

    start: int
    tokens: int
    words: int
    drawn: int


def choose_spans(words: Words, budget: int, uniforms: NDArray[np.float64]) -> list[Span]:
    """N-grams to predict, at most `budget` tokens, ascending.

    Starts are tried in random order; n is drawn anew for every span that is placed, and kept while a start does not
    suit, so the lengths that are realised follow p(n) as drawn. A span that the budget does not allow is shortened
    word by word; a word that the budget does not allow is passed over.

    Args:
        uniforms: (2 W,) numbers in [0, 1): the order of the starts, then the lengths.
    """
    count = len(words.starts)
    order = np.argsort(uniforms[:count], kind="stable").tolist()
    lengths_drawn = (np.searchsorted(_NGRAM_CDF, uniforms[count : 2 * count], side="right") + 1).tolist()
    starts, lengths, segments = words.starts.tolist(), words.lengths.tolist(), words.segments.tolist()
    taken = bytearray(count)
    spans: list[Span] = []
    # The second pass only finds work in rows too short for the lengths drawn: there it fills up with single words.
    for first, single in [(first, False) for first in order] + [(first, True) for first in order]:
        if budget <= 0:
            break
        drawn = 1 if single else lengths_drawn[len(spans)]
        last = first + drawn - 1
        if last >= count or segments[last] != segments[first] or any(taken[first : last + 1]):
            continue
        tokens = sum(lengths[first : last + 1])
        while tokens > budget:
            tokens -= lengths[last]
            last -= 1
        if last < first:
            continue
        taken[first : last + 1] = b"\1" * (last + 1 - first)
        spans.append(Span(starts[first], tokens, last + 1 - first, drawn))
        budget -= tokens
    return sorted(spans)


def positions(spans: Sequence[Span]) -> NDArray[np.int64]:
    """The positions of `spans`, in their order."""
    # Words of one segment are contiguous, so a span is a run of positions.
    runs = [np.arange(span.start, span.start + span.tokens, dtype=np.int64) for span in spans]
    return np.concatenate([np.empty(0, dtype=np.int64), *runs])


def corrupt(
    labels: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    mask_id: int,
    first_ordinary_id: int,
    vocabulary_size: int,
) -> NDArray[np.int64]:
    """What the model sees in place of `labels` (K,): 80 % [MASK], 10 % a random ordinary token, 10 % unchanged.

    Args:
        uniforms: (2 K,) numbers in [0, 1): which of the three, then which random token. Special tokens, whose ids
            are below `first_ordinary_id`, are never drawn.
    """
    count = len(labels)
    choice = uniforms[:count]
    ordinary = vocabulary_size - first_ordinary_id
    random_tokens = first_ordinary_id + np.floor(uniforms[count : 2 * count] * ordinary).astype(np.int64)
    return np.where(choice < 0.8, mask_id, np.where(choice < 0.9, random_tokens, labels))
