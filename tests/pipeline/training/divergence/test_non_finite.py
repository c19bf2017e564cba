"""Losses that are not finite."""

import math

import torch

from pipeline.training.divergence.non_finite import NonFiniteLossCounter


def test_consecutive_steps_are_counted() -> None:
    counter = NonFiniteLossCounter("cpu")
    counted = []
    for losses in ([1.0, 2.0], [1.0, math.nan], [math.inf, 1.0], [3.0, 4.0], [-math.inf, math.nan]):
        for loss in losses:
            counter.add(torch.tensor(loss))
        counter.end_step()
        counted.append(counter.consecutive_steps())
    assert counted == [0, 1, 2, 0, 1]
