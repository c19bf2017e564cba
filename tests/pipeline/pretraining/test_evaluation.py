"""Metrics of pre-training from sums, and sentences with predictions, by hand."""

import math

import pytest
import torch

from pipeline.pretraining import evaluation
from pipeline.pretraining.evaluation import PretrainingSums


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
