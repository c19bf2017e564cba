"""Packing keeps its bounds, wastes little, and always gives the same rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.format.pairs import Parts, max_pairs, pack


def best_fit_decreasing(costs: list[int], capacity: int, max_pairs_in_row: int) -> list[int]:
    """Runs the textbook algorithm, which searches every row for every pair. Returns the sorted sums of the rows."""
    rows: list[list[int]] = []
    for cost in sorted(costs, reverse=True):
        fitting = [row for row in rows if sum(row) + cost <= capacity and len(row) < max_pairs_in_row]
        if fitting:
            max(fitting, key=sum).append(cost)
        else:
            rows.append([cost])
    return sorted(map(sum, rows))


@given(costs=st.lists(st.integers(3, 64), max_size=150), max_pairs_in_row=st.sampled_from([1, 4, 150]))
@settings(max_examples=200, deadline=None)
def test_rows_are_within_bounds_and_numbered_by_their_first_pair(costs: list[int], max_pairs_in_row: int) -> None:
    rows = pack(np.array(costs, np.int64), 64, max_pairs_in_row)
    assert len(rows) == len(costs)
    sums, pairs = np.bincount(rows, weights=costs), np.bincount(rows)
    assert (sums <= 64).all()
    assert (pairs <= max_pairs_in_row).all()
    assert list(dict.fromkeys(rows.tolist())) == list(range(len(sums)))


@given(costs=st.lists(st.integers(3, 64), max_size=100))
@settings(max_examples=100, deadline=None)
def test_it_is_best_fit_decreasing(costs: list[int]) -> None:
    rows = pack(np.array(costs, np.int64), 64, len(costs) + 1)
    assert sorted(np.bincount(rows, weights=costs).astype(int).tolist()) == best_fit_decreasing(costs, 64, 101)


def test_positions_count_the_special_tokens() -> None:
    # [CLS] lead a [SEP] b trail [SEP]: 1 + 4 + 6 + 2 + 3; [CLS] a [SEP]: 4 + 2.
    parts = Parts(np.array([1, 0]), np.array([4, 4]), np.array([6, 0]), np.array([2, 0]))
    assert parts.positions().tolist() == [16, 6]


@pytest.mark.parametrize(("length", "most"), [(8, 1), (16, 1), (64, 4), (512, 32)])
def test_most_pairs_of_a_row(length: int, most: int) -> None:
    assert max_pairs(length) == most


@pytest.mark.parametrize("length", [64, 128, 512])
def test_rows_are_at_least_99_per_cent_full(length: int) -> None:
    # What long documents give: nine full pairs of ten, one of a uniform shorter length.
    generator = np.random.default_rng(0)
    costs = np.where(generator.random(5000) < 0.9, length, generator.integers(5, length + 1, 5000))
    rows = pack(costs, length, max_pairs(length))
    assert costs.sum() / (length * (rows.max() + 1)) > 0.99
