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

    The context of a token is counted on the side that has less of it. If several windows have the same context, the
    longer one is best, then the earlier one. An answer is searched for only in the best window of its first token.
    """
    positions = np.arange(tokens)
    scores = np.full((len(windows), tokens), -np.inf)
    for number, (start, length) in enumerate(windows):
        inside = positions[start : start + length]
        scores[number, start : start + length] = np.minimum(inside - start, start + length - 1 - inside) + 0.01 * length
    return scores.argmax(axis=0)


def tokens_of_answer(tokens: TokensWithOffsets, answer: str, start: int) -> tuple[int, int] | None:
    """The first and last token of the answer that begins at character `start`; None if it has no token."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, start + len(answer), side="left")) - 1
    return (first, last) if first <= last else None
