"""Row layout: several sequences [CLS] A [SEP] B [SEP] one after another in a row, with padding at its end.

The sequences of a row do not see each other: positions start again at each [CLS], and `sequence_ids` tell them apart.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from data_prep.text.vocabulary import CLS_ID, PAD_ID, SEP_ID

Tokens = NDArray[np.integer]
"""Token ids of one text segment, (n,)."""


class PackedRows(NamedTuple):
    """The encoder's input: B rows of S positions, int64. See `model.AlbertModel.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S) 0 in [CLS] A [SEP] and on padding, 1 in B [SEP]
    position_ids: NDArray[np.int64]  # (B, S) from 0 at each [CLS]
    sequence_ids: NDArray[np.int64]  # (B, S) number of the sequence in its row, -1 on padding


class RowFields(Protocol):
    """A batch that has the fields of `PackedRows`."""

    @property
    def input_ids(self) -> NDArray[np.int64]: ...
    @property
    def token_type_ids(self) -> NDArray[np.int64]: ...
    @property
    def position_ids(self) -> NDArray[np.int64]: ...
    @property
    def sequence_ids(self) -> NDArray[np.int64]: ...


def blank_rows(rows: int, length: int) -> PackedRows:
    """Rows of padding, (rows, length)."""
    return PackedRows(
        input_ids=np.full((rows, length), PAD_ID, dtype=np.int64),
        token_type_ids=np.zeros((rows, length), dtype=np.int64),
        position_ids=np.zeros((rows, length), dtype=np.int64),
        sequence_ids=np.full((rows, length), -1, dtype=np.int64),
    )


def sequence_length(first: Tokens, second: Tokens | None) -> int:
    """Tokens of a sequence, [CLS] and [SEP] included."""
    return len(first) + 2 if second is None else len(first) + len(second) + 3


def lay_out(rows: RowFields, row: int, start: int, number: int, first: Tokens, second: Tokens | None) -> int:
    """Writes [CLS] first [SEP] second [SEP] into row `row`, or [CLS] first [SEP] without a second segment.

    Args:
        start: position of the [CLS].
        number: of the sequence in its row.
    Returns:
        The position behind the last [SEP].
    """
    ids = rows.input_ids[row]
    end = start + sequence_length(first, second)
    middle = start + 1 + len(first)  # the first [SEP]
    ids[start], ids[start + 1 : middle], ids[middle] = CLS_ID, first, SEP_ID
    if second is not None:
        ids[middle + 1 : end - 1], ids[end - 1] = second, SEP_ID
        rows.token_type_ids[row, middle + 1 : end] = 1
    rows.position_ids[row, start:end] = np.arange(end - start)
    rows.sequence_ids[row, start:end] = number
    return end
