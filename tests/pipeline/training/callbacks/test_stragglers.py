"""Which rank comes last, by how much and how often."""

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.training.callbacks.stragglers import JUDGED_STEPS, StepTimes, Stragglers, WorkTimes

HOSTS = ["a", "a", "b", "b"]


def make_stragglers(ranks: int, rank: int = 0) -> tuple[Stragglers, list[str]]:
    """The callback on one of `ranks` ranks, and the lines that it prints."""
    said: list[str] = []
    control = SimpleNamespace(rank=rank, world_size=ranks)
    run: Any = SimpleNamespace(control=control, hosts=HOSTS, say=said.append, is_rank_0=rank == 0)
    return Stragglers(run), said


def record_of(steps: list[list[float]], whole: float = 1.0, rank: int = 0) -> tuple[dict[str, Any], list[str]]:
    """The record of an interval in whose steps the ranks work for these seconds, and the lines about it."""
    stragglers, said = make_stragglers(len(steps[0]), rank)
    for work in [[9.0] + [0.0] * (len(steps[0]) - 1)] * 3 + steps:  # the first three warm up
        stragglers.add(work, whole)
    record: dict[str, Any] = {}
    stragglers.log(record)
    further: dict[str, Any] = {}
    stragglers.log(further)
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
    for number in range(3 + 2 * JUDGED_STEPS + 10):
        stragglers.add([0.5, 0.9], 1.0)
        if number % 10 == 0:
            stragglers.log({})
    assert len(said) == 2
    assert record_of([[0.5, 0.9]] * (JUDGED_STEPS - 1))[1] == [], "too few steps"


def test_only_rank_0_prints_the_line() -> None:
    record, lines = record_of([[0.1, 0.9]] * JUDGED_STEPS, rank=1)
    assert record["last_rank_cost"] > 0.5
    assert lines == []


def test_a_rank_votes_with_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stragglers, _ = make_stragglers(2, rank=1)
    times = iter([None, StepTimes(0.5, 1.0)])
    monkeypatch.setattr(stragglers._times, "end_step", lambda: next(times))
    assert math.isnan(stragglers.vote(0)[1]), "its time is not known"
    assert stragglers.vote(1) == [0.0, 0.5]
    assert record_of([[1.0, math.nan]])[0] == {}, "a step without all times is left out"


def test_a_rank_alone_is_compared_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    stragglers, said = make_stragglers(1)
    monkeypatch.setattr(stragglers._times, "end_step", lambda: StepTimes(0.5, 1.0))
    record: dict[str, Any] = {}
    for step in range(9):
        stragglers.agreed(list(stragglers.vote(step)))
    stragglers.log(record)
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


def make_step(times: WorkTimes, device: Device) -> None:
    """0.5 s for data, two forward passes of 1 s on the host and 3 s on the device; 9 s in all."""
    times.enter("data")
    device.now += 0.5
    times.enter("agreement")
    device.now += 4.0
    for _ in range(2):
        times.enter("forward")
        device.now += 1.0
        device.at += 3.0
        times.enter("backward")
        device.now += 1.0
        device.at += 6.0
    times.enter("optimizer")
    device.now += 0.5


def test_own_work_is_data_and_forward_passes() -> None:
    device = Device()
    times = WorkTimes(clock=device.clock)
    for _ in range(2):
        make_step(times, device)
        assert times.end_step() == StepTimes(work=2.5, whole=9.0)


def test_the_passes_of_a_device_are_read_two_steps_later_and_never_waited_for() -> None:
    device = Device()
    times = WorkTimes(device.make_event, device.clock)
    ended = []
    for passed in (True, True, True, False, True):
        device.passed = passed
        make_step(times, device)
        ended.append(times.end_step())
    expected = StepTimes(work=6.5, whole=9.0)
    assert ended == [None, None, expected, None, expected]  # in the fourth the device had not passed the events


def test_a_step_with_an_evaluation_or_a_save_is_left_out() -> None:
    device = Device()
    times = WorkTimes(clock=device.clock)
    times.leave_out()
    make_step(times, device)
    assert times.end_step() is None
    make_step(times, device)
    assert times.end_step() == StepTimes(work=2.5, whole=9.0)
