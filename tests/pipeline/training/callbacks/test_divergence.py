"""Losses that are not finite."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.training.callback import TrainingFailed
from pipeline.training.callbacks.divergence import NON_FINITE_STEPS, Divergence
from pipeline.training.state import TrainingRun, TrainState
from pipeline.training.training_task import Evaluation


def make_divergence() -> tuple[Divergence, TrainingRun]:
    """The callback on one of two ranks; the other one says nothing."""
    control: Any = SimpleNamespace(rank=0, world_size=2, sum=lambda values: list(map(float, values)))
    run = TrainingRun(SimpleNamespace(), control, SimpleNamespace(device="cpu"), TrainState())  # type: ignore[arg-type]
    return Divergence(run), run


def train(divergence: Divergence, run: TrainingRun, losses: list[float]) -> None:
    """Steps of one micro-step with these losses."""
    for loss in losses:
        divergence.on_micro_step({}, None, torch.tensor(loss))
        run.state.step += 1
        divergence.on_step(1.0)


def test_weights_whose_last_loss_is_not_finite_are_not_saved() -> None:
    divergence, run = make_divergence()
    train(divergence, run, [1.0, math.nan])
    assert divergence.on_save() == "the loss is infinite or no number"
    train(divergence, run, [1.0, math.inf, 1.0])
    assert divergence.on_save() == ""


def test_a_loss_that_stays_non_finite_ends_the_run() -> None:
    divergence, run = make_divergence()
    train(divergence, run, [math.nan] * (NON_FINITE_STEPS - 1) + [1.0])
    train(divergence, run, [-math.inf] * (NON_FINITE_STEPS - 1))
    divergence.on_log({})
    train(divergence, run, [math.inf])
    with pytest.raises(TrainingFailed, match="for 10 steps or more at step 20, on 1 of 2 ranks"):
        divergence.on_log({})


def test_a_first_evaluation_without_a_finite_number_ends_the_run() -> None:
    divergence, _ = make_divergence()
    divergence.on_trial(None, 0.1)
    divergence.on_trial(Evaluation({"loss": 2.0}, 0.5, "loss"), 0.1)
    with pytest.raises(TrainingFailed, match="the held-out loss is nan after 0 steps"):
        divergence.on_trial(Evaluation({"loss": math.nan}, 0.5, "loss"), 0.1)
