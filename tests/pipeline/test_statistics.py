"""Figures of sums: by hand, and against scipy-free closed forms."""

import math

import pytest
import torch

from model.albert import PreTrainingOutput
from pipeline import statistics
from pipeline.statistics import Meter


def sums(*values, sequence_ids):
    output = PreTrainingOutput(torch.zeros(0), None, *(torch.tensor(float(value)) for value in values))
    return statistics.pretraining_sums(output, torch.tensor(sequence_ids))


def test_means_are_over_tokens_and_pairs_not_over_batches():
    meter = Meter(statistics.SUMS, "cpu")
    #           MLM: loss correct count, sentence: loss correct count
    meter.add(sums(10.0, 1, 4, 2.0, 1, 2, sequence_ids=[[0, 0, -1], [0, 1, 1]]))
    meter.add(sums(2.0, 2, 2, 1.0, 2, 4, sequence_ids=[[0, 0, 0], [-1, -1, -1]]))
    totals = meter.totals()
    assert totals[-2:] == [8.0, 3.0]  # tokens, and rows that are not empty
    figures = statistics.summarise(totals, "sop")
    assert figures["mlm_loss"] == 2.0  # (10 + 2) / (4 + 2), where the mean of means would be 1.75
    assert figures["mlm_accuracy"] == 0.5
    assert figures["sop_loss"] == 0.5
    assert figures["sop_accuracy"] == 0.5
    assert figures["loss"] == 2.5
    assert (figures["predictions"], figures["pairs"]) == (6, 6)


def test_a_meter_goes_on_where_it_was():
    first, second = Meter(8, "cpu"), Meter(8, "cpu")
    first.add(sums(1, 2, 3, 4, 5, 6, sequence_ids=[[0]]))
    second.load(first.totals())
    assert second.totals() == first.totals()
    second.reset()
    assert set(second.totals()) == {0.0}


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_has_the_published_values(successes, trials, low, high):
    assert statistics.wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_entropy_of_known_distributions():
    assert statistics.entropy(torch.tensor([5.0, 5.0, 0.0, 5.0, 5.0])) == pytest.approx(math.log(4))
    assert statistics.entropy(torch.tensor([9.0, 0.0])) == 0.0
    half = statistics.entropy(torch.tensor([2.0, 1.0, 1.0]))
    assert half == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(4))
