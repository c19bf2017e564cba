"""Metrics of pre-training from sums, and sentences with predictions, by hand."""

import math

import numpy as np
import pytest
import torch

from model.layers.heads import IGNORED_LABEL
from model.pretraining import PreTrainingOutput
from pipeline.data.collate import BatchShape, blank
from pipeline.pretraining import evaluation
from pipeline.pretraining.evaluation import PretrainingSums
from pipeline.training.meter import Meter

PIECES = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", " the", " cat", " s", "at", "*", " dog"]


def test_right_and_wrong_predictions_are_told_apart() -> None:
    batch = blank(2, BatchShape(16, pairs=2, predictions=3))
    #        [CLS] the  cat   s   at   *  [SEP]   the second sequence has no prediction, the row no more
    batch.input_ids[0, :9] = [2, 5, 4, 7, 10, 9, 3, 2, 3]  # "cat" is masked, "at" replaced by "dog"
    batch.sequence_ids[0, :9] = [0] * 7 + [1] * 2
    batch.masked_positions[0] = [2, 4, 0]
    batch.masked_labels[0] = [6, 8, IGNORED_LABEL]
    header, rule, row = evaluation.show_predictions(batch, np.array([[6, 10, 5], [5, 5, 5]]), PIECES)
    assert header.count("|") == rule.count("|") == 4
    assert row == (
        r"| \[CLS\] the <strong>cat</strong> s<strong>at</strong>\* \[SEP\] "
        r"| \[CLS\] the <strong>cat</strong> s <em>✗dog</em>\* \[SEP\] | 1/2 |"
    )


def test_a_long_sequence_is_cut() -> None:
    batch = blank(1, BatchShape(200, pairs=1, predictions=1))
    batch.input_ids[0] = 6
    batch.sequence_ids[0] = 0
    batch.masked_labels[0] = 6
    row = evaluation.show_predictions(batch, np.array([[6]]), PIECES)[-1]
    assert row.count("cat") == 2 * evaluation.MAX_PIECES
    assert "… |" in row


def test_only_so_many_are_shown() -> None:
    batch = blank(5, BatchShape(4, pairs=1, predictions=1))
    batch.input_ids[:, :3] = [2, 4, 3]
    batch.sequence_ids[:, :3] = 0
    batch.masked_positions[:] = 1
    batch.masked_labels[:] = 5
    text = r"\[CLS\] <strong>the</strong> \[SEP\]"
    assert (
        evaluation.show_predictions(batch, np.full((5, 1), 5), PIECES, count=2)[2:]
        == [f"| {text} | {text} | 1/1 |"] * 2
    )


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
