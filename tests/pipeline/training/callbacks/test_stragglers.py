"""Which rank comes last, by how much and how often."""

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.training.callbacks.stragglers import JUDGED_STEPS, Stragglers

HOSTS = ["a", "a", "b", "b"]


def make_stragglers(ranks: int, rank: int = 0, **more: Any) -> tuple[Stragglers, list[str]]:
    """The callback on one of `ranks` ranks, and the lines that it prints."""
    said: list[str] = []
    control = SimpleNamespace(rank=rank, world_size=ranks)
    run: Any = SimpleNamespace(control=control, hosts=HOSTS, say=said.append, is_rank_0=rank == 0)
    return Stragglers(run, **more), said


def add(stragglers: Stragglers, steps: list[list[float]]) -> None:
    """Adds steps of 1 s in which the ranks work for these seconds."""
    for work in steps:
        stragglers._seconds = 1.0
        stragglers.on_agreement(work)


def record_of(steps: list[list[float]], rank: int = 0) -> tuple[dict[str, Any], list[str]]:
    """The record of an interval, and the lines about it. The first three steps warm up."""
    stragglers, said = make_stragglers(len(steps[0]), rank)
    add(stragglers, [[9.0] + [0.0] * (len(steps[0]) - 1)] * 3 + steps)
    record: dict[str, Any] = {}
    stragglers.on_log(record)
    further: dict[str, Any] = {}
    stragglers.on_log(further)
    assert further == {}, "an interval without steps"
    return record, said


def test_a_slow_rank_is_named_with_its_cost() -> None:
    record, lines = record_of([[0.80, 0.82, 0.92, 0.81]] * 60 + [[0.80, 0.84, 0.82, 0.81]] * 4)
    seconds = (60 * 0.1 - 4 * 0.02) / 64
    assert record == {
        "last_rank": 2,
        "last_rank_share": 60 / 64,
        "last_rank_seconds": pytest.approx(seconds),
        "last_rank_cost": pytest.approx(seconds),
    }
    assert lines == [
        "rank 2 on host b costs 9 % of the time: it comes last in 94 % of the last 64 steps, on average 0.0925 s "
        "after all others"
    ]


def test_equal_ranks_are_not_named() -> None:
    """The last of them costs 10 % of a step on average, but it is another one each time."""
    chance = random.Random(0)
    for ranks in (2, 4):
        record, lines = record_of([[0.8 + 0.2 * chance.random() for _ in range(ranks)] for _ in range(100)])
        assert record["last_rank_share"] < 0.75
        assert lines == []


@pytest.mark.parametrize(("last_rank", "named"), [(0.849, False), (0.851, True)])
def test_a_rank_is_named_above_five_percent(last_rank: float, named: bool) -> None:
    assert bool(record_of([[0.80, last_rank]] * JUDGED_STEPS)[1]) == named


@pytest.mark.parametrize(("late_steps", "named"), [(47, False), (48, True)])
def test_a_rank_is_named_if_it_comes_last_in_three_of_four_steps(late_steps: int, named: bool) -> None:
    steps = [[0.5, 0.9]] * late_steps + [[0.51, 0.5]] * (64 - late_steps)
    assert bool(record_of(steps)[1]) == named


def test_each_line_is_about_steps_of_its_own() -> None:
    stragglers, said = make_stragglers(2)
    add(stragglers, [[0.5, 0.9]] * 3)
    for _ in range(14):
        add(stragglers, [[0.5, 0.9]] * 10)
        stragglers.on_log({})
    assert len(said) == 2
    assert "of the last 70 steps" in said[0]
    assert record_of([[0.5, 0.9]] * (JUDGED_STEPS - 1))[1] == [], "too few steps"


def test_only_rank_0_prints_the_line() -> None:
    record, lines = record_of([[0.1, 0.9]] * JUDGED_STEPS, rank=1)
    assert record["last_rank_cost"] > 0.5
    assert lines == []


def test_a_step_without_all_times_is_left_out() -> None:
    assert record_of([[1.0, math.nan]])[0] == {}


def test_a_rank_alone_is_compared_with_nobody() -> None:
    stragglers, said = make_stragglers(1)
    record: dict[str, Any] = {}
    for step in range(9):
        assert stragglers.on_vote(step) == []
        stragglers.on_agreement([])
    stragglers.on_log(record)
    assert (record, said) == ({}, [])


class Device:
    """A clock of the host, and a device whose events stand at the time `at` and are passed once `passed` is true."""

    def __init__(self) -> None:
        self.now, self.at, self.passed = 0.0, 0.0, True

    def clock(self) -> float:
        return self.now

    def make_event(self) -> "Event":
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self._device = device

    def record(self) -> None:
        self.at = self._device.at

    def query(self) -> bool:
        return self._device.passed

    def elapsed_time(self, end: "Event") -> float:
        return 1000 * (end.at - self.at)


def make_step(
    stragglers: Stragglers, device: Device, further: tuple[str, ...] = ()
) -> tuple[list[float], float | None]:
    """0.5 s for data, two forward passes of 1 s on the host and 3 s on the device; 9 s in all. Returns the vote."""
    passes = ((1.0, "forward", 3.0), (1.0, "backward", 6.0)) * 2
    phases: Any = ((0.5, "data", 0.0), (4.0, "agreement", 0.0), *passes, (0.5, "optimizer", 0.0))
    for seconds, phase, on_device in (*phases, *((0.0, name, 0.0) for name in further)):
        stragglers.on_phase(phase)
        device.now += seconds
        device.at += on_device
    return stragglers.on_vote(0), stragglers._seconds


def test_a_rank_votes_with_its_data_and_forward_passes() -> None:
    device = Device()
    stragglers, _ = make_stragglers(3, rank=1, clock=device.clock)
    for _ in range(2):
        assert make_step(stragglers, device) == ([0.0, 2.5, 0.0], 9.0)


def test_the_passes_of_a_device_are_read_two_steps_later_and_never_waited_for() -> None:
    device = Device()
    stragglers, _ = make_stragglers(2, make_event=device.make_event, clock=device.clock)
    work = []
    for passed in (True, True, True, False, True):
        device.passed = passed
        (own, _), _ = make_step(stragglers, device)
        work.append(own)
    # In the fourth step the device had not passed the events.
    assert work == pytest.approx([math.nan, math.nan, 6.5, math.nan, 6.5], nan_ok=True)


@pytest.mark.parametrize("phase", ["evaluation", "save"])
def test_a_step_with_an_evaluation_or_a_save_is_left_out(phase: str) -> None:
    device = Device()
    stragglers, _ = make_stragglers(2, clock=device.clock)
    vote, seconds = make_step(stragglers, device, (phase,))
    assert (math.isnan(vote[0]), seconds) == (True, None)
    assert make_step(stragglers, device) == ([2.5, 0.0], 9.0)
