"""Overlapping windows over a passage that is too long for the model, as in BERT's code for SQuAD."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.offsets import TokensWithOffsets


class Window(NamedTuple):
    """Tokens [start, start + length) of a passage."""

    start: int
    length: int


def windows_of(tokens: int, capacity: int, stride: int) -> list[Window]:
    """Windows of up to `capacity` tokens, which start `stride` tokens apart and cover the whole passage.

    A `stride` above `capacity` is lowered to it, so that there are no gaps. An empty passage has one empty window.
    """
    windows = []
    start = 0
    while True:
        length = min(tokens - start, capacity)
        windows.append(Window(start, length))
        if start + length == tokens:
            return windows
        start += min(length, stride)


def best_window_of_tokens(windows: Sequence[Window], tokens: int) -> NDArray[np.int64]:
    """The window in which each token has the most context, (tokens,).

    The context of a token is counted on the side that has less of it, and a hundredth of the window's length is added.
    Of equal windows the earlier one is best. An answer is searched for only in the best window of its first token.
    """
    best, scores = np.zeros(tokens, dtype=np.int64), np.full(tokens, -np.inf)
    for number, (start, length) in enumerate(windows):
        window, inside = slice(start, start + length), np.arange(length)
        found = np.minimum(inside, length - 1 - inside) + 0.01 * length  # (length,)
        best[window][found > scores[window]] = number
        scores[window] = np.maximum(scores[window], found)
    return best


def tokens_of_answer(tokens: TokensWithOffsets, answer: str, start: int) -> tuple[int, int] | None:
    """The first and last token of the answer that begins at character `start`; None if it has no token."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, start + len(answer), side="left")) - 1
    return (first, last) if first <= last else None
