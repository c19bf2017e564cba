"""Runs under a time limit, on a simulated clock, and runs out of patience."""

import random
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.checkpoint.saver import Saved
from pipeline.training import schedule
from pipeline.training.callbacks.early_end import BestScore, Deadline
from pipeline.training.state import Clock, TrainingRun, TrainState
from pipeline.training.training_task import Evaluation


def make_deadline(
    hours: float = 1.0, steps: int = 1000, saved_bytes: int = 0, rank: int = 0, seconds: float = 900.0
) -> tuple[Deadline, TrainingRun, Any]:
    """The callback of a run with a task that a test fills."""
    settings: Any = SimpleNamespace(steps=steps)
    parameter = SimpleNamespace(numel=lambda: saved_bytes / BYTES_A_PARAMETER)
    engine: Any = SimpleNamespace(module=SimpleNamespace(parameters=lambda: [parameter]))
    control: Any = SimpleNamespace(rank=rank)
    run = TrainingRun(settings, control, engine, TrainState(), clock=Clock(seconds))
    task: Any = SimpleNamespace()
    return Deadline(run, task, hours), run, task


def test_what_the_end_takes_is_set_aside() -> None:
    limit, _, _ = make_deadline(saved_bytes=10**9)  # a save of 10 s until one is measured
    assert limit.progress(0, 1787.5) == pytest.approx(1787.5 / 3562.5)  # 3600 - 1.25 * 3 * 10
    limit.on_checkpoint(Saved(10, 40.0, 1.0))
    limit.on_evaluation(Evaluation({}, 0.0, "loss"), 100.0)
    limit.on_step(12.0)
    limit.on_step(3.0)
    assert limit.reserve == 445.0  # 1.25 * (3 * 40 + 2 * 100 + 3 * 12)
    assert limit.progress(1, 2366.25) == pytest.approx(0.75)  # of 3155
    assert limit.progress(2, 1577.5) == pytest.approx(0.75)  # never less than before
    assert limit.progress(990, 2366.25) == pytest.approx(0.99)
    assert limit.progress(3, 3155.0) == 1.0


def test_a_limit_that_is_too_short_for_anything_makes_one_step() -> None:
    assert make_deadline(hours=0.001, saved_bytes=10**12)[0].progress(0, 0.0) == 1.0


def ended_at(hours: float, steps: int, seed: int) -> tuple[float, float, list[float]]:
    """Simulates a run whose steps, saves and evaluations take random times.

    Returns:
        When its last step ends, when its last save ends, and its learning rates.
    """
    chance = random.Random(seed)
    limit, _, _ = make_deadline(hours, steps, saved_bytes=2 * 10**9)
    now, read_at, step, rates, trained = 0.0, 0.0, 0, [], 0.0
    while step < steps:
        progress = limit.progress(step, read_at)
        rates.append(schedule.albert(schedule.step_of_progress(progress, step, steps), 1.0, steps // 10, steps))
        step += 1
        for what, lasts, due in (("step", 2.0, True), ("evaluation", 30.0, step % 50 == 0 or progress >= 1)):
            if due:
                took = lasts * chance.uniform(0.8, 1.0)
                limit._learn(what, took)
                # The clock is read within a step, if neither an evaluation nor a save follows the step.
                read_at = now if what == "step" else now + took
                now += took
        trained = now
        if progress >= 1.0 or step % 100 == 0:
            took = 20.0 * chance.uniform(0.8, 1.0)
            limit._learn("save", took)
            now += took
            read_at = now
        if progress >= 1.0:
            break
    return trained, now, rates


@given(hours=st.floats(0.5, 3.0), seed=st.integers(0, 1000))
def test_schedule_and_last_save_end_in_time(hours: float, seed: int) -> None:
    steps = 10_000
    trained, saved, rates = ended_at(hours, steps, seed)
    assert saved <= 3600 * hours
    assert trained >= 3600 * hours - 1.25 * (3 * 20 + 2 * 30 + 3 * 2)  # no more was given away than set aside
    assert max(rates) > 0.85  # the whole warm-up
    assert rates[-1] < 0.05  # and the whole decay
    assert rates[-1] > 0.0


def test_a_run_that_its_steps_end_first_has_its_own_schedule() -> None:
    _, _, rates = ended_at(hours=10.0, steps=100, seed=0)
    assert rates == [schedule.albert(step, 1.0, 10, 100) for step in range(100)]


def test_only_rank_0_votes_and_at_the_limit_the_step_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    deadline, run, _ = make_deadline()
    assert deadline.on_vote(10) == [0.25]
    assert make_deadline(rank=1)[0].on_vote(10) == [0.0]
    deadline.on_agreement([0.25])
    assert (run.schedule_progress, run.ends) == (0.25, False)
    deadline.on_agreement([1.0])
    assert (run.schedule_progress, run.ends) == (1.0, True)


def test_what_only_a_start_does_is_not_expected_of_each_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation before the first step compiles. Later ones of that size, a hundredth, take 2 s."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    deadline, _, task = make_deadline()

    def evaluate(engine: Any) -> tuple[None, float]:
        nonlocal now
        now += 2.0
        return None, 0.01

    task.try_evaluation = evaluate
    deadline.on_trial(None, 0.01)
    assert deadline.reserve == pytest.approx(1.25 * 2 * 200.0)


def ends_at(patience: int | None, scores: list[float]) -> tuple[list[int], TrainState]:
    """The steps after whose evaluation the run ends; there is an evaluation every 10 steps."""
    settings: Any = SimpleNamespace(patience=patience)
    run = TrainingRun(settings, SimpleNamespace(rank=0), None, TrainState())  # type: ignore[arg-type]
    best, ends = BestScore(run), []
    for number, score in enumerate(scores, 1):
        run.state.step, run.ends = 10 * number, False
        best.on_evaluation(Evaluation({}, score, "loss"), 1.0)
        assert run.score == score
        if run.ends:
            ends.append(run.state.step)
    return ends, run.state


def test_the_first_of_equal_scores_is_the_best() -> None:
    ends, state = ends_at(None, [0.1, 0.3, 0.3, 0.2])
    assert (ends, state.best_score, state.best_step) == ([], 0.3, 20)


def test_a_run_out_of_patience_ends() -> None:
    assert ends_at(20, [0.3, 0.2, 0.4, 0.4, 0.3])[0] == [50]
    assert ends_at(10, [-0.3, -0.2, -0.2])[0] == [30]
