"""n-gram whole-word masking (paper, section 3.1 and equation 1; Joshi et al., SpanBERT).

A part of a row's tokens is predicted, in n-grams of whole words with p(n) proportional to 1/n. Of the predicted tokens
some are replaced with [MASK], some with a random token, and the rest are kept. This is decided token by token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_LIMIT_OF_NGRAM = 512  # words; the paper has 3, SpanBERT 10


@dataclass(frozen=True)
class MaskingSettings:
    """How the tokens to predict are chosen and replaced. The defaults are the paper's values.

    Attributes:
        mask_probability: part of a row's tokens, special ones included, that is predicted; above 0, up to 1.
        max_ngram: words of the longest n-gram.
        replace_with_mask: part of the predicted tokens that becomes [MASK].
        replace_with_random: part of the predicted tokens that becomes a random token. The rest are kept.

    Raises:
        ValueError: a value is out of its range.
    """

    mask_probability: float = 0.15
    max_ngram: int = 3
    replace_with_mask: float = 0.8
    replace_with_random: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.mask_probability <= 1:
            raise ValueError(f"mask_probability is {self.mask_probability:g}; give a number above 0 and up to 1")
        if not 1 <= self.max_ngram <= _LIMIT_OF_NGRAM:
            raise ValueError(f"max_ngram is {self.max_ngram}; give a number of words from 1 to {_LIMIT_OF_NGRAM}")
        for name in ("replace_with_mask", "replace_with_random"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name):g}; give a number from 0 to 1")
        together = self.replace_with_mask + self.replace_with_random
        if together > 1 + 1e-9:
            raise ValueError(f"replace_with_mask + replace_with_random is {together:g}; give a sum of at most 1")

    def max_predictions(self, sequence_length: int) -> int:
        """The largest number of predictions in a row of `sequence_length` tokens: 77 of 512 in the paper."""
        return max(1, round(self.mask_probability * sequence_length))

    @cached_property
    def ngram_cdf(self) -> NDArray[np.float64]:
        """Cumulative p(n) for n = 1 ... max_ngram, (max_ngram,): 6/11, 9/11 and 1 for the paper's 3."""
        cumulative = np.cumsum(1.0 / np.arange(1, self.max_ngram + 1))
        return cumulative / cumulative[-1]


class Words(NamedTuple):
    """The W words of a row, in order. Each word and each n-gram is inside one segment."""

    starts: NDArray[np.int64]  # (W,) position of each word's first token
    lengths: NDArray[np.int64]  # (W,) tokens of each word
    segments: NDArray[np.int64]  # (W,) number of the word's segment


def find_words(token_ids: NDArray[np.int64], segments: NDArray[np.int64], continues_word: NDArray[np.bool_]) -> Words:
    """Finds the words of a row.

    Args:
        token_ids: (T,) the row's tokens.
        segments: (T,) number of each token's segment, ascending; -1 on [CLS], [SEP] and padding.
        continues_word: (V,) True for pieces that continue a word.
    """
    inside = segments >= 0
    previous = np.concatenate(([-1], segments[:-1]))
    # A word that is cut by the end of a segment counts as two words, one in each segment.
    begins = inside & (~continues_word[token_ids] | (segments != previous))
    starts = np.flatnonzero(begins)
    breaks = np.flatnonzero(begins | ~inside)  # every position at which a word cannot go on
    ends = np.append(breaks, len(token_ids))[np.searchsorted(breaks, starts, side="right")]
    return Words(starts, ends - starts, segments[starts])


class Span(NamedTuple):
    """An n-gram to predict.

    Attributes:
        start: position of its first token.
        tokens: how many tokens it has.
        words: how many words it has.
        drawn: how many words its length was drawn as; more than `words` if the budget shortened it.
    """

    start: int
    tokens: int
    words: int
    drawn: int


def choose_spans(words: Words, budget: int, uniforms: NDArray[np.float64], settings: MaskingSettings) -> list[Span]:
    """Chooses the n-grams to predict, at most `budget` tokens, ascending.

    Starts are tried in random order. A new n is drawn only after a span is placed: if a start does not suit, the next
    start is tried with the same n. The lengths of the spans therefore follow p(n). A span that exceeds the budget is
    shortened word by word; a word that exceeds the budget is skipped.

    Args:
        uniforms: (2 W,) numbers in [0, 1): first the order of the starts, then the lengths.
    """
    count = len(words.starts)
    order = np.argsort(uniforms[:count], kind="stable").tolist()
    # At most every word is drawn, one by one; the budget is at least a token for each.
    lengths_drawn = uniforms[count : count + min(count, budget) + 1]
    lengths_drawn = (np.searchsorted(settings.ngram_cdf, lengths_drawn, side="right") + 1).tolist()
    # A view gives single elements as fast as a list, and needs no copy of all.
    starts, segments, ends = words.starts.data, words.segments.data, (words.starts + words.lengths).data
    taken = bytearray(count)
    spans: list[Span] = []
    # The second pass adds single words. It only finds work in rows that are too short for the lengths drawn.
    for single in (False, True):
        for first in order:
            if budget <= 0:
                break
            if taken[first]:
                continue
            drawn = 1 if single else lengths_drawn[len(spans)]
            behind = first + drawn
            if behind > count or segments[behind - 1] != segments[first] or 1 in taken[first:behind]:
                continue
            start = starts[first]
            while behind > first and ends[behind - 1] - start > budget:
                behind -= 1
            if behind == first:
                continue
            tokens, number = ends[behind - 1] - start, behind - first
            taken[first:behind] = b"\1" * number
            spans.append(Span(start, tokens, number, drawn))
            budget -= tokens
    return sorted(spans)


def positions(spans: Sequence[Span]) -> NDArray[np.int64]:
    """The positions of all tokens of `spans`, (K,), in their order."""
    # Words of one segment are contiguous, so a span is a run of positions.
    starts = np.array([span.start for span in spans], dtype=np.int64)
    tokens = np.array([span.tokens for span in spans], dtype=np.int64)
    ends = np.cumsum(tokens)
    return np.repeat(starts - ends + tokens, tokens) + np.arange(tokens.sum())


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
        uniforms: (2 K,) numbers in [0, 1): first which of the three, then which random token.
        first_ordinary_id: special tokens have ids below it and are never drawn.
    """
    count = len(labels)
    choice = uniforms[:count]
    ordinary = vocabulary_size - first_ordinary_id
    random_tokens = first_ordinary_id + np.floor(uniforms[count : 2 * count] * ordinary).astype(np.int64)
    with_random = settings.replace_with_mask + settings.replace_with_random
    kept_or_random = np.where(choice < with_random, random_tokens, labels)
    return np.where(choice < settings.replace_with_mask, mask_id, kept_or_random)
