"""Which rank comes last, by how much and how often."""

import math
import random

import pytest

from pipeline.distributed.collective_times import StepTimes
from pipeline.training.reporting.stragglers import Stragglers

HOSTS = ["a", "a", "b", "b"]


def interval(steps: list[list[float]], whole: float = 1.0) -> tuple[dict[str, float], str]:
    """Metrics and line of an interval, in whose steps the ranks work for these seconds."""
    stragglers = Stragglers(0, len(steps[0]), HOSTS)
    for work in [[9.0] + [0.0] * (len(steps[0]) - 1)] * 3 + steps:  # the first three warm up
        stragglers.add(work, StepTimes(work[0], whole))
    metrics = stragglers.metrics()
    assert stragglers.metrics() == {}
    return metrics, stragglers.line(metrics)


def test_a_slow_rank_is_named_with_its_cost() -> None:
    metrics, line = interval([[0.80, 0.82, 0.92, 0.81]] * 9 + [[0.80, 0.84, 0.82, 0.81]])
    expected = (9 * 0.1 - 0.02) / 10
    assert metrics == {
        "last_rank": 2,
        "last_rank_share": 0.9,
        "last_rank_seconds": pytest.approx(expected),
        "last_rank_cost": pytest.approx(expected),
    }
    assert line == (
        "rank 2 on host b costs 9 % of the time: "
        "it comes last in 90 % of the steps, on average 0.088 s after all others"
    )


def test_chance_names_nobody() -> None:
    """The last of equal ranks costs 10 % of a step on average, but it is another one each time."""
    chance = random.Random(0)
    metrics, line = interval([[0.8 + 0.2 * chance.random() for _ in HOSTS] for _ in range(100)])
    assert metrics["last_rank_cost"] == 0.0
    assert metrics["last_rank_seconds"] < 0.0
    assert line == ""


def test_a_rank_that_is_rarely_but_very_late_is_named() -> None:
    metrics, line = interval([[0.5, 0.5, 0.5, 0.49]] * 9 + [[0.5, 0.5, 0.5, 2.5]])
    assert (metrics["last_rank"], metrics["last_rank_share"]) == (3, 0.1)
    assert metrics["last_rank_cost"] == pytest.approx((2.0 - 9 * 0.01) / 10)
    assert line


def test_only_rank_0_prints_the_line() -> None:
    stragglers = Stragglers(1, 2, ())  # it does not know the hosts
    for _ in range(9):
        stragglers.add([0.1, 0.9], StepTimes(0.9, 1.0))
    metrics = stragglers.metrics()
    assert metrics["last_rank_cost"] > 0.5
    assert stragglers.line(metrics) == ""


def test_below_five_percent_there_is_no_line() -> None:
    assert interval([[0.80, 0.849]])[1] == ""
    assert interval([[0.80, 0.851]])[1]


def test_steps_whose_times_a_rank_does_not_know_are_left_out() -> None:
    stragglers = Stragglers(1, 2, HOSTS)
    assert math.isnan(stragglers.own_work(None)[1])
    assert stragglers.own_work(StepTimes(0.5, 1.0)) == [0.0, 0.5]
    assert interval([[1.0, math.nan]])[0] == {}


def test_a_rank_alone_is_compared_with_nobody() -> None:
    stragglers = Stragglers(0, 1, ["a"])
    assert stragglers.own_work(StepTimes(0.5, 1.0)) == []
    for _ in range(9):
        stragglers.add([], StepTimes(0.5, 1.0))
    assert stragglers.metrics() == {}
    assert stragglers.line({}) == ""
