"""Which rank comes last, by how much and how often."""

import itertools
import math
import random
from collections.abc import Iterator

import pytest

from pipeline.distributed.collective_times import StepTimes
from pipeline.training.reporting.stragglers import Stragglers, chance

HOSTS = ["a", "a", "b", "b"]


def interval(steps: list[list[float]], whole: float = 1.0) -> tuple[dict[str, float], str]:
    """Metrics and line of an interval, in whose steps the ranks work for these seconds."""
    stragglers = Stragglers(0, len(steps[0]), HOSTS)
    for work in [[9.0] + [0.0] * (len(steps[0]) - 1)] * 3 + steps:  # the first three warm up
        stragglers.add(work, StepTimes(work[0], whole))
    metrics = stragglers.metrics()
    assert stragglers.metrics() == {}
    return metrics, stragglers.line()


def test_a_slow_rank_is_named_with_its_cost() -> None:
    metrics, line = interval([[0.80, 0.82, 0.92, 0.81]] * 18 + [[0.80, 0.84, 0.82, 0.81]] * 2)
    expected = (9 * 0.1 - 0.02) / 10
    assert metrics == {
        "last_rank": 2,
        "last_rank_share": 0.9,
        "last_rank_seconds": pytest.approx(expected),
        "last_rank_cost": pytest.approx(expected),
    }
    assert line == (
        "rank 2 on host b costs 9 % of the time: "
        "it comes last in 90 % of the last 20 steps, on average 0.088 s after all others"
    )


def test_chance_names_nobody() -> None:
    """The last of equal ranks costs 10 % of a step on average, but it is another one each time."""
    chance = random.Random(0)
    metrics, line = interval([[0.8 + 0.2 * chance.random() for _ in HOSTS] for _ in range(100)])
    assert metrics["last_rank_cost"] == 0.0
    assert metrics["last_rank_seconds"] < 0.0
    assert line == ""


def test_a_rank_that_is_rarely_but_very_late_is_named_unless_it_was_once() -> None:
    usual, late = [0.5, 0.5, 0.5, 0.49], [0.5, 0.5, 0.5, 2.5]
    metrics, line = interval(([usual] * 9 + [late]) * 12)
    assert (metrics["last_rank"], metrics["last_rank_share"]) == (3, 0.1)
    assert metrics["last_rank_cost"] == pytest.approx((2.0 - 9 * 0.01) / 10)
    assert line
    assert interval([usual] * 9 + [late])[1] == ""


def late_by(delay: float, ranks: int, noise: float, seed: int) -> Iterator[list[float]]:
    """The seconds of the ranks' own work in each step. The last rank works longer by `delay` than it would."""
    draws = random.Random(seed)
    while True:
        work = [0.8 * draws.lognormvariate(0.0, noise) for _ in range(ranks)]
        yield [*work[:-1], work[-1] + delay]


def lines(steps: Iterator[list[float]], ranks: int, intervals: int, length: int) -> int:
    """How many of the intervals of a run end with a line."""
    stragglers, found = Stragglers(0, ranks, ["a"] * ranks), 0
    for number in range(intervals):
        for work in itertools.islice(steps, length + (0 if number else 3)):
            stragglers.add(work, StepTimes(work[0], max(work) + 0.2))
        stragglers.metrics()
        found += bool(stragglers.line())
    return found


@pytest.mark.parametrize(("ranks", "length"), [(2, 2), (2, 20), (8, 5)])
def test_equal_ranks_give_no_line_in_10000_intervals(ranks: int, length: int) -> None:
    """Of runs of 10 intervals, so that many have few steps to judge. The noise is 10 % of a rank's work."""
    steps = late_by(0.0, ranks, 0.1, seed=ranks + length)
    assert sum(lines(steps, ranks, 10, length) for _ in range(1000)) == 0


@pytest.mark.parametrize(("ranks", "length", "delay"), [(2, 10, 0.06), (8, 10, 0.095), (8, 100, 0.095)])
def test_a_rank_that_costs_more_than_five_percent_gives_a_line(ranks: int, length: int, delay: float) -> None:
    """It costs 5.6 % of the time. The noise is 3 %, so that among 8 ranks another one is often late as well."""
    found = [lines(late_by(delay, ranks, 0.03, seed), ranks, 10, length) for seed in range(100)]
    assert min(found) >= 1
    assert max(found) <= 10 * length // {2: 21, 8: 8}[ranks], "each line is about steps of its own"


@pytest.mark.parametrize("ranks", [2, 5])
def test_the_chance_is_an_upper_bound(ranks: int) -> None:
    draws = random.Random(ranks)
    for steps in (1, 5, 20):
        margins = [draws.expovariate(1.0) for _ in range(steps)]
        last = [0 if draws.random() < 0.7 else draws.randrange(ranks) for _ in range(steps)]
        own = sum(margin for who, margin in zip(last, margins) if who == 0)
        others = ([draws.randrange(ranks) for _ in range(steps)] for _ in range(2000))
        as_much = sum(sum(m for who, m in zip(other, margins) if who == 0) >= own for other in others) / 2000
        bound = chance(last, margins, 0, ranks)
        assert bound >= ranks * as_much - 0.05
    assert chance([0] * 20, [0.1] * 20, 0, ranks) == pytest.approx(ranks * ranks**-20.0)


def test_only_rank_0_prints_the_line() -> None:
    stragglers = Stragglers(1, 2, ())  # it does not know the hosts
    for _ in range(9):
        stragglers.add([0.1, 0.9], StepTimes(0.9, 1.0))
    metrics = stragglers.metrics()
    assert metrics["last_rank_cost"] > 0.5
    assert stragglers.line() == ""


def test_below_five_percent_there_is_no_line() -> None:
    assert interval([[0.80, 0.849]] * 30)[1] == ""
    assert interval([[0.80, 0.851]] * 30)[1]


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
    assert stragglers.line() == ""
