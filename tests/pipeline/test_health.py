"""Losses that are no numbers."""

import math

import torch

from pipeline.health import LossWatch


def test_steps_in_a_row_are_counted() -> None:
    watch = LossWatch("cpu")
    counted = []
    for losses in ([1.0, 2.0], [1.0, math.nan], [math.inf, 1.0], [3.0, 4.0], [-math.inf, math.nan]):
        for loss in losses:
            watch.add(torch.tensor(loss))
        watch.end_step()
        counted.append(watch.steps())
    assert counted == [0, 1, 2, 0, 1]
