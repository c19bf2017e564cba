"""Losses that are not finite."""

import math

import torch

from pipeline.training.divergence.non_finite import NonFiniteLossCounter, explain_overflow


def test_consecutive_steps_are_counted() -> None:
    counter = NonFiniteLossCounter("cpu")
    counted = []
    for losses in ([1.0, 2.0], [1.0, math.nan], [math.inf, 1.0], [3.0, 4.0], [-math.inf, math.nan]):
        for loss in losses:
            counter.add(torch.tensor(loss))
        counter.end_step()
        counted.append(counter.consecutive_steps())
    assert counted == [0, 1, 2, 0, 1]


def test_only_fp16_has_a_loss_scale_to_lower() -> None:
    assert "the loss scale was lowered to 512" in explain_overflow("fp16", 2, 1000, 512.0)
    for precision in ("bf16", "fp32"):
        line = explain_overflow(precision, 2, 1000, 1.0)
        assert line.startswith(f"{precision}: gradients were infinite or no number in 2 of 1,000 steps. ")
        assert "scale" not in line
        assert "--precision" not in line
