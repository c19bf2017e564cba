"""Row packing: each token once, in few rows, pairs cut as in BERT's code; and the offsets for FlashAttention."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.text.vocabulary import CLS_ID, PAD_ID, SEP_ID
from pipeline.data.packed_rows import offset_count, sequence_offsets
from pipeline.tasks.kinds.row_packing import cls_grid, distribute, pack, truncate_pair
from tests.model.examples import few_examples

TEXTS = st.lists(st.integers(5, 99), max_size=60).map(lambda ids: np.array(ids, dtype=np.uint16))
SEQUENCES = st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=12)


@given(SEQUENCES)
def test_every_sequence_can_be_read_back(sequences):
    rows, placement = pack(sequences)
    size = rows.input_ids.shape[1]
    assert size % 8 == 0
    used = 0
    for index, (first, second) in enumerate(sequences):
        row, start = placement.row[index], placement.start[index]
        here = slice(start, start + placement.length[index])
        wanted = [CLS_ID, *first, SEP_ID, *([] if second is None else [*second, SEP_ID])]
        assert rows.input_ids[row, here].tolist() == wanted
        assert rows.token_type_ids[row, here].tolist() == [0] * (len(first) + 2) + [1] * (len(wanted) - len(first) - 2)
        assert rows.position_ids[row, here].tolist() == list(range(len(wanted)))
        assert (rows.sequence_ids[row, here] == placement.number[index]).all()
        used += len(wanted)
    assert (rows.sequence_ids >= 0).sum() == used
    assert (rows.input_ids[rows.sequence_ids < 0] == PAD_ID).all()
    # Sequences are contiguous and numbered from 0 within their row.
    for ids in rows.sequence_ids:
        kept = ids[ids >= 0].tolist()
        assert kept == sorted(kept)
        assert set(kept) == set(range(len(set(kept))))
    grid = cls_grid(placement, len(rows.input_ids))
    assert (grid[placement.row, placement.number] == placement.start).all()


@given(st.lists(st.integers(2, 128), min_size=1, max_size=64))
def test_rows_are_few_and_even(lengths):
    rows = distribute(lengths, 128)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    fills = [sum(lengths[index] for index in row) for row in rows]
    assert max(fills) <= 128
    # The bound of bin packing: two rows that fit into one row would have become one.
    assert len(rows) <= max(1, 2 * -(-sum(lengths) // 128))
    if len(rows) == -(-sum(lengths) // 128):
        assert max(fills) - min(fills) <= max(lengths)


@given(TEXTS, TEXTS, st.integers(1, 130))
def test_a_pair_is_cut_as_in_bert(first, second, room):
    a, b = list(first), list(second)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    cut_first, cut_second = truncate_pair(first, second, room)
    assert (cut_first.tolist(), cut_second.tolist()) == (a, b)


@few_examples
@given(rows=st.lists(st.lists(st.integers(1, 6), max_size=5), min_size=1, max_size=9))
def test_offsets_cover_every_token_once(rows):
    length = max(1, *map(sum, rows))
    ids = np.full((len(rows), length), -1)
    expected = [0]
    for row, sizes in enumerate(rows):
        ids[row, : sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
        for size in [*sizes, *([length - sum(sizes)] if length > sum(sizes) else [])]:
            expected.append(expected[-1] + size)
    found = sequence_offsets(ids)
    assert found.dtype == np.int32
    assert found.tolist() == expected + [ids.size] * (offset_count(len(expected) - 1) + 1 - len(expected))


def test_there_are_few_numbers_of_offsets():
    """Four from each power of two to the next, none more than a quarter too large."""
    assert [offset_count(number) for number in (1, 2, 3, 4, 5, 8, 9, 10, 11)] == [1, 2, 3, 4, 5, 8, 10, 10, 12]
    assert [offset_count(number) for number in (64, 65, 80, 81, 128, 129)] == [64, 80, 80, 96, 128, 160]
    assert sorted({offset_count(number) for number in range(65, 129)}) == [80, 96, 112, 128]
    for number in range(1, 5000):
        assert number <= offset_count(number) < 1.25 * number + 1
