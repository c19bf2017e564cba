"""n-gram whole-word masking (paper, section 3.1 and equation 1; Joshi et al., SpanBERT).

A part of a row's tokens is predicted, in n-grams of whole words with p(n) proportional to 1/n. Of the predicted tokens
some are replaced with [MASK], some with a random token, and the rest are kept. This is decided token by token.
"""

import itertools
from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.rng import as_uniforms

MAX_NGRAM = 512  # words; the paper has 3, SpanBERT 10
_INDEX_BITS = 11  # of a random number; longer rows need more


@dataclass(frozen=True)
class MaskingSettings:
    """How the tokens to predict are chosen and replaced. The defaults are the paper's values.

    Raises:
        ValueError: a value is out of its range.
    """

    mask_probability: float = 0.15  # part of a row's tokens, special ones included, that is predicted; above 0, up to 1
    max_ngram: int = 3  # words of the longest n-gram
    replace_with_mask: float = 0.8  # part of the predicted tokens that becomes [MASK]
    replace_with_random: float = 0.1  # part of the predicted tokens that becomes a random token. The rest are kept.

    def __post_init__(self) -> None:
        if not 0 < self.mask_probability <= 1:
            raise ValueError(f"mask_probability is {self.mask_probability:g}; give a number above 0 and up to 1")
        if not 1 <= self.max_ngram <= MAX_NGRAM:
            raise ValueError(f"max_ngram is {self.max_ngram}; give a number of words from 1 to {MAX_NGRAM}")

    def max_predictions(self, sequence_length: int) -> int:
        """The largest number of predictions in a row of `sequence_length` tokens: 77 of 512 in the paper."""
        return max(1, round(self.mask_probability * sequence_length))

    @cached_property
    def ngram_cdf(self) -> NDArray[np.float64]:
        """Cumulative p(n) for n = 1 ... max_ngram, (max_ngram,): 6/11, 9/11 and 1 for the paper's 3."""
        cumulative = np.cumsum(1.0 / np.arange(1, self.max_ngram + 1))
        return cumulative / cumulative[-1]


class Words(NamedTuple):
    """W words in order, of one row or of several. Each word and each n-gram is inside one segment."""

    starts: NDArray[np.int64]  # (W,) position of each word's first token
    lengths: NDArray[np.int64]  # (W,) tokens of each word
    segments: NDArray[np.int64]  # (W,) number of the word's segment


def find_words(token_ids: NDArray[np.int64], segments: NDArray[np.int64], continues_word: NDArray[np.bool_]) -> Words:
    """Finds the words.

    Args:
        token_ids: (T,) the tokens.
        segments: (T,) number of each token's segment, ascending; -1 on [CLS], [SEP] and padding.
        continues_word: (V,) True for pieces that continue a word.
    """
    # A word that is cut by the end of a segment counts as two words, one in each segment.
    breaks = ~continues_word[token_ids]  # (T,) where a word cannot go on
    breaks[:1] = True
    breaks[1:] |= segments[1:] != segments[:-1]
    firsts = np.flatnonzero(breaks)  # each word's first token
    ends = np.append(firsts[1:], len(token_ids))
    numbers = segments[firsts]
    inside = numbers >= 0
    starts = firsts[inside]
    return Words(starts, ends[inside] - starts, numbers[inside])


class Spans(NamedTuple):
    """N n-grams to predict, ascending."""

    starts: NDArray[np.int64]  # (N,) position of each one's first token
    tokens: NDArray[np.int64]  # (N,) how many tokens it has
    rows: NDArray[np.int64]  # (N,) its row

    def positions(self) -> NDArray[np.int64]:
        """The positions of all tokens, (K,), ascending."""
        # Words of one segment are contiguous, so a span is a run of positions.
        ends = np.cumsum(self.tokens)
        return np.repeat(self.starts - ends + self.tokens, self.tokens) + np.arange(self.tokens.sum())


def choose_spans(
    words: Words,
    counts: NDArray[np.int64],
    budgets: NDArray[np.int64],
    numbers: NDArray[np.uint64],
    settings: MaskingSettings,
) -> Spans:
    """Chooses the n-grams to predict of B rows.

    Starts are tried in random order. A new n is sampled only after a span is placed: if a start does not suit, the next
    start is tried with the same n. The lengths of the spans therefore follow p(n). A span that exceeds the budget is
    shortened word by word; a word that exceeds the budget is skipped.

    Args:
        words: of all rows, row after row.
        counts: (B,) words of each row.
        budgets: (B,) the most tokens to predict in each row.
        numbers: (B, N) random; N is at least twice the words of any row. Those of a row with W words are first the
            order of the starts, W of them, and then the lengths.
    """
    firsts = np.cumsum(counts) - counts  # (B,) each row's first word
    order = firsts[:, None] + _shuffled(counts, numbers)  # (B, W)
    # At most every word is chosen, one by one; the budget is at least a token for each.
    most = int(np.minimum(counts, budgets).max(initial=0)) + 1
    columns = np.minimum(counts[:, None] + np.arange(most), numbers.shape[1] - 1)  # (B, L)
    uniforms = as_uniforms(np.take_along_axis(numbers, columns, axis=1))
    lengths = np.searchsorted(settings.ngram_cdf, uniforms, side="right") + 1  # (B, L)
    unplaced = _Unplaced(words, settings.max_ngram)
    of_row = []  # how many spans each row has
    for in_order, count, wanted, budget in zip(order, counts.tolist(), lengths.tolist(), budgets.tolist()):
        before = len(unplaced.spans)
        left = unplaced.place(in_order[:count].data, iter(wanted), budget)
        # The second pass adds single words. It only finds work in rows that are too short for the lengths sampled.
        if left:
            unplaced.place(in_order[:count].data, itertools.repeat(1), left)
        of_row.append(len(unplaced.spans) - before)
    begins, sizes = np.array(unplaced.spans, dtype=np.int64).reshape(-1, 2).T  # (N,) each
    rows = np.repeat(np.arange(len(of_row)), of_row)  # (N,)
    starts, last = words.starts[begins], begins + sizes - 1
    spans = Spans(starts, words.starts[last] + words.lengths[last] - starts, rows)
    # The words of a row follow those of the row before.
    ascending = np.argsort(begins)
    return Spans(*(column[ascending] for column in spans))


class _Unplaced:
    """The words that are in no span yet, and the spans placed so far.

    spans: of each its first word, and how many words it has.
    """

    def __init__(self, words: Words, max_ngram: int) -> None:
        self.spans: list[tuple[int, int]] = []
        last = np.flatnonzero(np.diff(words.segments, append=-1))  # (segments,) each one's last word
        to_end = np.repeat(last + 1, np.diff(last, prepend=-1)) - np.arange(len(words.starts))  # (W,)
        # For each word the words to the end of its segment, as far as a span may need them; 0 if it is taken.
        self._free = _elements(np.minimum(to_end, max_ngram))
        self._tokens = _elements(words.lengths)
        self._taken = [bytes(count) for count in range(max_ngram + 1)]

    def place(self, order: Iterable[int], lengths: Iterator[int], budget: int) -> int:
        """Places spans until the budget of tokens is used up. Returns what is left of it.

        Each word of `order` is tried as the beginning of a span of `wanted` words. If the words fit, the next of
        `lengths` is wanted from then on. If they do not, the same length is tried at the next word.
        """
        free, sizes, taken, spans = self._free, self._tokens, self._taken, self.spans  # locals: this loop is hot
        wanted = next(lengths)
        for first in order:
            if free[first] < wanted:  # taken, or too near to the end of its segment
                continue
            if wanted == 1:  # as below, but most spans have one word, for which less is to do
                tokens = sizes[first]
                if tokens > budget:
                    continue
                free[first] = 0
                spans.append((first, 1))
            else:
                behind = first + wanted
                if 0 in free[first:behind]:  # a later word is taken
                    continue
                tokens = sum(sizes[first:behind])
                while tokens > budget:  # shorten it from its end
                    behind -= 1
                    tokens -= sizes[behind]
                if behind == first:
                    continue
                free[first:behind] = taken[behind - first]
                spans.append((first, behind - first))
            budget -= tokens
            if not budget:
                break
            wanted = next(lengths)
        return budget


def _elements(values: NDArray[np.int64]) -> MutableSequence[int]:
    """Numbers from 0, as Python reads single ones fastest."""
    return bytearray(values.astype(np.uint8)) if values.max(initial=0) < 256 else values.tolist()


def _shuffled(counts: NDArray[np.int64], numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """(B, W) the numbers 0 to W - 1 in random order for each row; behind a row's count, they mean nothing."""
    # A key is a random number whose last bits are replaced by its index. Sorted keys have the indices in random order.
    # That takes a tenth of the time of a stable `argsort`.
    width = int(counts.max(initial=0))
    index = np.arange(width)
    index_bits = np.uint64((1 << max(_INDEX_BITS, (width - 1).bit_length())) - 1)
    keys = numbers[:, :width] & ~index_bits | index.astype(np.uint64)
    keys[index >= counts[:, None]] = ~np.uint64(0)  # comes last
    keys.sort(axis=1)
    return (keys & index_bits).astype(np.int64)


def corrupt(
    labels: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    mask_id: int,
    first_ordinary_id: int,
    vocabulary_size: int,
    settings: MaskingSettings,
) -> NDArray[np.int64]:
    """The tokens (K,) that the model reads in place of `labels` (K,): [MASK], a random ordinary token, or the label.

    Args:
        uniforms: (2, K) numbers in [0, 1): which of the three, and which random token.
        first_ordinary_id: special tokens have ids below it and are never sampled.
    """
    choice, which = uniforms
    ordinary = vocabulary_size - first_ordinary_id
    random_tokens = first_ordinary_id + np.floor(which * ordinary).astype(np.int64)
    with_random = settings.replace_with_mask + settings.replace_with_random
    kept_or_random = np.where(choice < with_random, random_tokens, labels)
    return np.where(choice < settings.replace_with_mask, mask_id, kept_or_random)
