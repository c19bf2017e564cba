"""Losses that are not finite, and spikes."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.training.callback import SpikeFound, TrainingFailed
from pipeline.training.callbacks.divergence import NON_FINITE_STEPS, Divergence
from pipeline.training.state import TrainingRun, TrainState
from pipeline.training.training_task import Evaluation


def make_divergence(policy: str | None = "warn", made: int = 0) -> tuple[Divergence, TrainingRun, list[Any]]:
    """The callback of a run after `made` rollbacks of two, on one of two ranks; the other one says nothing."""
    logged: list[Any] = []
    engine_settings = SimpleNamespace(world_size=2, accumulation_steps=2)
    settings: Any = SimpleNamespace(on_divergence=policy, max_rollbacks=2, engine=engine_settings)
    control: Any = SimpleNamespace(rank=0, world_size=2, begin_sum=lambda values: lambda: list(map(float, values)))
    engine: Any = SimpleNamespace(device="cpu", norm=1.0, get_global_grad_norm=lambda: engine.norm)
    run = TrainingRun(settings, control, engine, TrainState(), rollbacks=[None] * made)  # type: ignore[list-item]
    log: Any = SimpleNamespace(log=lambda *arguments: logged.append(arguments))
    return Divergence(run, log), run, logged


def train(divergence: Divergence, run: TrainingRun, losses: list[float], norm: float = 1.0) -> None:
    """Steps of one micro-step with these losses."""
    run.engine.norm = norm
    for loss in losses:
        divergence.on_micro_step({}, None, torch.tensor(loss))
        run.state.step += 1
        divergence.on_step(1.0)


def test_a_spike_that_is_only_warned_of_is_said_and_recorded() -> None:
    divergence, run, logged = make_divergence()
    said: list[str] = []
    run.say = said.append
    train(divergence, run, [8.0] * 90)  # the sum over 4 micro-batches
    train(divergence, run, [24.0] * 10, norm=9.0)
    divergence.on_log({})
    assert said == ["warning: the loss has risen from 2 to 6 in steps 91 to 93, and the gradient norm from 1 to 9"]
    ((step, metrics, split),) = logged
    assert (step, split, metrics["loss"], metrics["usual_loss"]) == (93, "spike", 6.0, 2.0)
    assert divergence.on_save() == ""
    assert (len(run.state.spikes.losses), run.undo_step) == (7, 100 - 8)


SPIKE = "the loss has risen from 2 to 6 in steps 91 to 93, and the gradient norm from 1 to 9"


@pytest.mark.parametrize(
    ("policy", "made", "error", "message"),
    [
        ("stop", 0, TrainingFailed, f"{SPIKE}; go on with --on-divergence rollback"),
        ("rollback", 1, SpikeFound, SPIKE),
        ("rollback", 2, TrainingFailed, r"the run has made 2 rollbacks \(--max-rollbacks\); lower the learning rate"),
    ],
)
def test_the_policies(policy: str, made: int, error: type[Exception], message: str) -> None:
    divergence, run, logged = make_divergence(policy, made)
    train(divergence, run, [8.0] * 90)
    train(divergence, run, [24.0] * 10, norm=9.0)
    with pytest.raises(error, match=message):
        divergence.on_log({})
    assert logged == []


def test_only_rank_0_gives_the_norms_which_are_those_of_all_ranks() -> None:
    for rank, wanted in ((0, [0.0, 0.0, 4.0, 9.0]), (1, [0.0, 0.0, 4.0, 0.0])):
        divergence, run, _ = make_divergence()
        asked: list[float] = []
        run.control.rank = rank  # type: ignore[misc]
        run.control.begin_sum = lambda values, asked=asked: asked.extend(values) or (lambda: values)  # type: ignore[assignment,misc]
        train(divergence, run, [4.0], norm=9.0)
        divergence.on_log({})
        assert asked == wanted


def test_without_a_policy_no_spike_is_looked_for() -> None:
    divergence, run, logged = make_divergence(None)
    train(divergence, run, [8.0] * 90 + [24.0] * 10)
    divergence.on_log({})
    assert (divergence.on_save(), run.undo_step, logged) == ("", None, [])


def test_the_steps_that_a_spike_may_undo_are_those_of_its_first_sign() -> None:
    divergence, run, _ = make_divergence("rollback")
    train(divergence, run, [8.0] * 90)
    train(divergence, run, [24.0] * 2, norm=9.0)
    assert divergence.on_save() == ""
    assert run.undo_step == 90 - 8, "two steps are doubtful already"


def test_weights_whose_last_loss_is_not_finite_are_not_saved() -> None:
    divergence, run, _ = make_divergence()
    train(divergence, run, [1.0, math.nan])
    assert divergence.on_save() == "the loss is infinite or no number"
    train(divergence, run, [1.0, math.inf, 1.0])
    assert divergence.on_save() == ""


def test_a_loss_that_stays_non_finite_ends_the_run() -> None:
    divergence, run, _ = make_divergence()
    train(divergence, run, [math.nan] * (NON_FINITE_STEPS - 1) + [1.0])
    train(divergence, run, [-math.inf] * (NON_FINITE_STEPS - 1))
    divergence.on_log({})
    train(divergence, run, [math.inf])
    with pytest.raises(TrainingFailed, match="for 10 steps or more at step 20, on 1 of 2 ranks"):
        divergence.on_log({})


def test_a_first_evaluation_without_a_finite_number_ends_the_run() -> None:
    divergence, _, _ = make_divergence()
    divergence.on_trial(None, 0.1)
    divergence.on_trial(Evaluation({"loss": 2.0}, 0.5, "loss"), 0.1)
    with pytest.raises(TrainingFailed, match="the held-out loss is nan after 0 steps"):
        divergence.on_trial(Evaluation({"loss": math.nan}, 0.5, "loss"), 0.1)
