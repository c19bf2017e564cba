"""Losses that are not finite, and spikes."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.training.callbacks.divergence import NON_FINITE_STEPS, Divergence, NonFiniteLossCounter
from pipeline.training.failures import TrainingFailed
from pipeline.training.state import TrainingRun, TrainState
from pipeline.training.training_task import Evaluation


def test_consecutive_steps_are_counted() -> None:
    counter = NonFiniteLossCounter("cpu")
    counted = []
    for losses in ([1.0, 2.0], [1.0, math.nan], [math.inf, 1.0], [3.0, 4.0], [-math.inf, math.nan]):
        for loss in losses:
            counter.add(torch.tensor(loss))
        counter.end_step()
        counted.append(counter.consecutive_steps())
    assert counted == [0, 1, 2, 0, 1]


def make_divergence() -> tuple[Divergence, TrainingRun, list[Any]]:
    """The callback of a run that warns of spikes, on one of two ranks; the other one says nothing."""
    logged: list[Any] = []
    engine_settings = SimpleNamespace(world_size=2, accumulation_steps=2)
    settings: Any = SimpleNamespace(on_divergence="warn", max_rollbacks=0, engine=engine_settings)
    control: Any = SimpleNamespace(rank=0, world_size=2, begin_sum=lambda values: lambda: list(map(float, values)))
    engine: Any = SimpleNamespace(device="cpu", norm=1.0, get_global_grad_norm=lambda: engine.norm)
    run = TrainingRun(settings, control, engine, TrainState())
    log: Any = SimpleNamespace(log=lambda *arguments: logged.append(arguments))
    return Divergence(run, log), run, logged


def train(divergence: Divergence, run: TrainingRun, losses: list[float], norm: float = 1.0) -> None:
    """Steps of one micro-step with these losses."""
    run.engine.norm = norm
    for loss in losses:
        divergence.batch({}, None, torch.tensor(loss))
        run.state.step += 1
        divergence.step(1.0)


def test_a_spike_that_is_only_warned_of_is_said_and_recorded() -> None:
    divergence, run, logged = make_divergence()
    said: list[str] = []
    run.say = said.append
    train(divergence, run, [8.0] * 90)  # the sum over 4 micro-batches
    train(divergence, run, [24.0] * 10, norm=9.0)
    divergence.log({})
    assert said == ["warning: the loss has risen from 2 to 6 in steps 91 to 93, and the gradient norm from 1 to 9"]
    ((step, metrics, split),) = logged
    assert (step, split, metrics["loss"], metrics["usual_loss"]) == (93, "spike", 6.0, 2.0)
    assert divergence.before_save() == ""
    assert (run.state.spikes, run.undo_step) == (divergence.spikes.state, 100 - 8)


def test_weights_whose_last_loss_is_not_finite_are_not_saved() -> None:
    divergence, run, _ = make_divergence()
    train(divergence, run, [1.0, math.nan])
    assert divergence.before_save() == "the loss is infinite or no number"
    train(divergence, run, [1.0])
    assert divergence.before_save() == ""


def test_a_loss_that_stays_non_finite_ends_the_run() -> None:
    divergence, run, _ = make_divergence()
    train(divergence, run, [math.nan] * (NON_FINITE_STEPS - 1))
    divergence.log({})
    train(divergence, run, [math.inf])
    with pytest.raises(TrainingFailed, match="for 10 steps or more at step 10, on 1 of 2 ranks"):
        divergence.log({})


def test_a_first_evaluation_without_a_finite_number_ends_the_run() -> None:
    divergence, _, _ = make_divergence()
    divergence.tried_evaluation(None, 0.1)
    divergence.tried_evaluation(Evaluation({"loss": 2.0}, 0.5, "loss"), 0.1)
    with pytest.raises(TrainingFailed, match="the held-out loss is nan after 0 steps"):
        divergence.tried_evaluation(Evaluation({"loss": math.nan}, 0.5, "loss"), 0.1)
