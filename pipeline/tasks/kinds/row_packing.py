"""Encodes texts as tokens, and packs sequences into rows of about equal length, so that little padding is computed.

As in pre-training, a row holds several sequences, and attention stays inside each. But here a batch has a fixed number
of samples, not of rows. The samples are spread evenly over few rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.text.text_encoder import Encoder
from data_prep.text.vocabulary import Vocabulary
from model.config import IGNORED_LABEL as IGNORED_LABEL
from pipeline.data.packed_rows import PackedRows, blank_rows, place_sequences, sequence_length

if TYPE_CHECKING:
    from torch import Tensor

MIN_ROW_LENGTH = 128
"""The smallest length of a row in tokens; a longer sequence in the batch makes the rows as long as itself. Longer rows
would make attention slower, because its cost grows with the square of the length. Shorter rows cannot be filled well.
"""

Tokens = NDArray[np.uint16]  # (n,)
SegmentPair = tuple[Tokens, Tokens | None]  # segments A and B of a sequence, without special tokens; B may be missing


class EncodedTexts:
    """The tokens of many texts in one array, made with the encoder of pre-training."""

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str]) -> None:
        self._ids, lengths = Encoder(vocabulary).encode_for_use(list(texts))
        self._ends = np.cumsum(lengths)
        self.lengths = lengths

    def __getitem__(self, index: int) -> Tokens:
        """The tokens of text `index`, uint16 (n,)."""
        end = int(self._ends[index])
        return self._ids[end - int(self.lengths[index]) : end]


def to_host(tensor: "Tensor") -> NDArray[np.float32]:
    """A tensor of logits as fp32 on the host."""
    return tensor.detach().float().cpu().numpy()


class Placement(NamedTuple):
    """The place of each of the N sequences of a batch in its rows."""

    row: NDArray[np.int64]  # (N,)
    number: NDArray[np.int64]  # (N,) the number of the sequence in its row
    start: NDArray[np.int64]  # (N,) position of its [CLS] in the row
    length: NDArray[np.int64]  # (N,) tokens, special tokens included


def distribute(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Distributes sequences of at most `row_length` tokens over rows; returns the numbers of those in each row.

    Sequences are placed from the longest to the shortest, each into the emptiest row. The number of rows is the
    smallest for which all fit in this way.
    """
    order = np.argsort(lengths, kind="stable")[::-1].tolist()
    count = max(1, -(-sum(lengths) // row_length))
    while True:
        rows: list[list[int]] = [[] for _ in range(count)]
        fill = [0] * count
        for index in order:
            emptiest = fill.index(min(fill))
            rows[emptiest].append(index)
            fill[emptiest] += lengths[index]
        if max(fill) <= row_length:
            return rows
        count += 1


def pack(sequences: Sequence[SegmentPair]) -> tuple[PackedRows, Placement]:
    """Packs the sequences [CLS] A [SEP] B [SEP] into rows; without sequences, the result is one row of padding."""
    lengths = [sequence_length(*segments) for segments in sequences]
    rows = distribute(lengths, max(MIN_ROW_LENGTH, *lengths, 0))
    longest = max(sum(lengths[index] for index in row) for row in rows)
    packed = blank_rows(len(rows), max(8, -(-longest // 8) * 8))  # GPUs multiply matrices fastest in multiples of 8
    order = [index for members in rows for index in members]
    pairs = [sequences[index] for index in order]
    layout = place_sequences(
        packed,
        np.array([len(members) for members in rows]),
        np.concatenate([np.empty(0, np.uint16), *(text for pair in pairs for text in pair if text is not None)]),
        np.array([len(first) for first, _ in pairs], dtype=np.int64),
        np.array([-1 if second is None else len(second) for _, second in pairs], dtype=np.int64),
    )
    places = np.empty(len(sequences), dtype=np.int64)  # (N,) where in the rows each sequence is
    places[order] = np.arange(len(sequences))
    return packed, Placement(*(column[places] for column in (layout.row, layout.number, layout.start, layout.lengths)))


def cls_grid(placement: Placement, rows: int) -> NDArray[np.int64]:
    """(B, P): the positions of each row's [CLS] tokens, 0 where unused; P is at least 1."""
    grid = np.zeros((rows, 1 + int(placement.number.max(initial=0))), dtype=np.int64)
    grid[placement.row, placement.number] = placement.start
    return grid


def truncate_pair(first: Tokens, second: Tokens, room: int) -> tuple[Tokens, Tokens]:
    """Cuts two texts to `room` tokens in all: one token at a time is removed from the end of the longer text.

    If both are equally long, the second text loses a token first.
    """
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    # The longer text shrinks to the length of the shorter one; then both lose tokens in turn.
    keep_first = min(len(first), max(room - len(second), (room + 1) // 2))
    return first[:keep_first], second[: room - keep_first]
