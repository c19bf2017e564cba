"""Windows over a long passage, one of which should show the answer with its surroundings (as BERT reads SQuAD)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.offsets import PlacedTokens


class Window(NamedTuple):
    """Tokens [start, start + length) of a passage."""

    start: int
    length: int


def windows_of(tokens: int, capacity: int, stride: int) -> list[Window]:
    """Windows of up to `capacity` tokens, each `stride` tokens after the last, until one reaches the passage's end.

    A passage without tokens has one window, which is empty. Without gaps, also where `stride` is above `capacity`.
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
    """(tokens,) the window in which each token has most context on its poorer side; of equals a longer or earlier one.

    An answer is looked for only in the window that shows its first token best.
    """
    positions = np.arange(tokens)
    scores = np.full((len(windows), tokens), -np.inf)
    for number, (start, length) in enumerate(windows):
        inside = positions[start : start + length]
        scores[number, start : start + length] = np.minimum(inside - start, start + length - 1 - inside) + 0.01 * length
    return scores.argmax(axis=0)


def tokens_of_answer(tokens: PlacedTokens, answer: str, start: int) -> tuple[int, int] | None:
    """First and last token of the answer that begins at character `start`; None where no token spells it."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, start + len(answer), side="left")) - 1
    return (first, last) if first <= last else None
