"""Sums with names, over batches and ranks; and the interval of a proportion."""

import math
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from common.errors import UserError
from pipeline.training import meter as metrics
from pipeline.training.meter import Meter


class Sums(NamedTuple):
    """`tokens` and `rows` stand between the others: their names count, not their positions."""

    loss: float
    tokens: float
    rows: float
    labels: float


def batch(*values):
    return Sums(*(torch.tensor(float(value)) for value in values))


def test_a_meter_continues_from_earlier_totals():
    first, second = Meter(Sums, "cpu"), Meter(Sums, "cpu")
    first.add(batch(1, 2, 3, 4))
    first.add(batch(10, 20, 30, 40))
    assert first.of_this_start(first.totals()) == (22, 33)
    second.load(list(first.totals()))
    assert second.totals() == first.totals() == Sums(loss=11, tokens=22, rows=33, labels=44)
    second.add(batch(1, 2, 3, 4))
    assert second.of_this_start(second.totals()) == (2, 3)
    second.reset()
    assert set(second.totals()) == {0.0}
    second.add(batch(1, 2, 3, 4))
    assert second.of_this_start(second.totals()) == (2, 3)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_batch_without_a_finite_loss_counts_its_tokens_and_rows_alone(loss):
    meter = Meter(Sums, "cpu")
    meter.add(batch(1, 2, 3, 4))
    meter.add(batch(loss, 20, 30, 40))
    assert meter.totals() == Sums(loss=1, tokens=22, rows=33, labels=4)


def test_vectors_are_summed_in_one_collective_and_keep_their_names():
    asked = []

    def double(values):
        asked.append(values)
        return lambda: [2 * value for value in values]

    found = metrics.sum_over_ranks(SimpleNamespace(begin_sum=double), [1.0, 0.0], [0.5], Sums(3.0, 4.0, 5.0, 6.0), [])
    assert asked == [[1.0, 0.0, 0.5, 3.0, 4.0, 5.0, 6.0]]
    assert found == [[2.0, 0.0], [1.0], Sums(6.0, 8.0, 10.0, 12.0), []]
    assert isinstance(found[2], Sums)


@pytest.mark.parametrize("number", [0, 1, len(Sums._fields) + 1])
def test_sums_of_another_task_or_version_are_refused(number: int) -> None:
    meter = Meter(Sums, "cpu")
    with pytest.raises(UserError, match=f"has {number} sums of metrics instead of {len(Sums._fields)}"):
        meter.load([1.0] * number)
    assert meter.totals() == Sums(*[0.0] * len(Sums._fields))
