"""Offsets of sequences for FlashAttention: every token is covered, few shapes exist, and the results are the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.packed_rows import offset_count, sequence_offsets
from tests.model.examples import few_examples


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
