"""Losses that are not finite."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.training.callback import TrainingFailed
from pipeline.training.divergence import NON_FINITE_STEPS, Divergence
from pipeline.training.training_run import TrainingRun, TrainState


def make_divergence() -> tuple[Divergence, TrainingRun]:
    """That of one of two ranks; the other one says nothing."""
    control: Any = SimpleNamespace(rank=0, world_size=2, sum=lambda values: list(map(float, values)))
    run = TrainingRun(SimpleNamespace(), control, SimpleNamespace(device="cpu"), TrainState())  # type: ignore[arg-type]
    return Divergence(run), run


def train(divergence: Divergence, run: TrainingRun, losses: list[float]) -> None:
    """Steps of one micro-step with these losses."""
    for loss in losses:
        divergence.add(torch.tensor(loss))
        run.state.step += 1
        divergence.end_step()


def test_weights_whose_last_loss_is_not_finite_are_not_saved() -> None:
    divergence, run = make_divergence()
    train(divergence, run, [1.0, math.nan])
    assert not divergence.judge()
    train(divergence, run, [1.0, math.inf, 1.0])
    assert divergence.judge()


def test_a_loss_that_stays_non_finite_ends_the_run() -> None:
    divergence, run = make_divergence()
    train(divergence, run, [math.nan] * (NON_FINITE_STEPS - 1) + [1.0])
    train(divergence, run, [-math.inf] * (NON_FINITE_STEPS - 1))
    divergence.judge()
    train(divergence, run, [math.inf])
    with pytest.raises(TrainingFailed, match="for 10 steps or more at step 20, on 1 of 2 ranks"):
        divergence.judge()
