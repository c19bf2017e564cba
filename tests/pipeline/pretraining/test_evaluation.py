"""Metrics of pre-training from sums, and sentences with predictions, by hand."""

import math

import pytest
import torch

from model.pretraining import PreTrainingOutput
from pipeline.pretraining import evaluation
from pipeline.pretraining.evaluation import PretrainingSums
from pipeline.training.step_metrics import Meter


def sums(*values, sequence_ids):
    output = PreTrainingOutput(torch.zeros(0), None, *(torch.tensor(float(value)) for value in values))
    return evaluation.batch_sums(output, torch.tensor(sequence_ids))


def test_means_are_over_tokens_and_pairs_not_over_batches():
    meter = Meter(PretrainingSums, "cpu")
    #           MLM: loss correct count, sentence: loss correct count
    meter.add(sums(10.0, 1, 4, 2.0, 1, 2, sequence_ids=[[0, 0, -1], [0, 1, 1]]))
    meter.add(sums(2.0, 2, 2, 1.0, 2, 4, sequence_ids=[[0, 0, 0], [-1, -1, -1]]))
    totals = meter.totals()
    assert (totals.tokens, totals.rows) == (8.0, 3.0)  # rows without a token do not count
    found = evaluation.summarise(totals, "sop")
    assert found["mlm_loss"] == 2.0  # (10 + 2) / (4 + 2), where the mean of means would be 1.75
    assert found["mlm_accuracy"] == 0.5
    assert found["sop_loss"] == 0.5
    assert found["sop_accuracy"] == 0.5
    assert found["loss"] == 2.5
    assert (found["predictions"], found["pairs"]) == (6, 6)


def test_nothing_predicted_is_no_number():
    found = evaluation.summarise(PretrainingSums(*[0.0] * 6, tokens=5.0, rows=1.0), "sop")
    assert math.isnan(found["mlm_loss"])
    assert "sop_loss" not in found
    assert found["interval_tokens"] == 5


def test_entropy_of_known_distributions():
    assert evaluation.entropy(torch.tensor([5.0, 5.0, 0.0, 5.0, 5.0])) == pytest.approx(math.log(4))
    assert evaluation.entropy(torch.tensor([9.0, 0.0])) == 0.0
    half = evaluation.entropy(torch.tensor([2.0, 1.0, 1.0]))
    assert half == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(4))
