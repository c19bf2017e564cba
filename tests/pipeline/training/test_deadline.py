"""Runs under a time limit, on a simulated clock."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.training import schedule
from pipeline.training.deadline import Deadline


def test_what_the_end_takes_is_set_aside() -> None:
    limit = Deadline(1.0, 1000, save_seconds=10.0)
    assert limit.progress(0, 1787.5) == pytest.approx(1787.5 / 3562.5)  # 3600 - 1.25 * 3 * 10
    for work, seconds in (("save", 40.0), ("evaluation", 100.0), ("step", 12.0), ("step", 3.0)):
        limit.learn(work, seconds)
    assert limit.reserve == 445.0  # 1.25 * (3 * 40 + 2 * 100 + 3 * 12)
    assert limit.progress(1, 2366.25) == pytest.approx(0.75)  # of 3155
    assert limit.progress(2, 1577.5) == pytest.approx(0.75)  # never less than before
    assert limit.progress(990, 2366.25) == pytest.approx(0.99)
    assert limit.progress(3, 3155.0) == 1.0


def test_a_limit_that_is_too_short_for_anything_makes_one_step() -> None:
    assert Deadline(0.001, 1000, save_seconds=10**4).progress(0, 0.0) == 1.0


def test_without_a_limit_there_is_no_progress() -> None:
    assert Deadline(None, 1000, save_seconds=10.0).progress(500, 10**9) == 0.0


def ended_at(hours: float, steps: int, seed: int) -> tuple[float, float, list[float]]:
    """Simulates a run whose steps, saves and evaluations take random times.

    Returns:
        When its last step ends, when its last save ends, and its learning rates.
    """
    chance = random.Random(seed)
    limit = Deadline(hours, steps, save_seconds=20.0)
    now, read_at, step, rates, trained = 0.0, 0.0, 0, [], 0.0
    while step < steps:
        progress = limit.progress(step, read_at)
        rates.append(schedule.albert(schedule.step_of_progress(progress, step, steps), 1.0, steps // 10, steps))
        step += 1
        for what, lasts, due in (("step", 2.0, True), ("evaluation", 30.0, step % 50 == 0 or progress >= 1)):
            if due:
                took = lasts * chance.uniform(0.8, 1.0)
                limit.learn(what, took)
                # The clock is read within a step, if neither an evaluation nor a save follows the step.
                read_at = now if what == "step" else now + took
                now += took
        trained = now
        if progress >= 1.0 or step % 100 == 0:
            took = 20.0 * chance.uniform(0.8, 1.0)
            limit.learn("save", took)
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
