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


def record_of(steps: list[list[float]], rank: int = 0) -> tuple[dict[str, Any], list[str]]:
    """The record of steps of 1 s in which the ranks work for these seconds, and the lines. The first three warm up."""
    stragglers, said = make_stragglers(len(steps[0]), rank)
    for work in ([[9.0] + [0.0] * (len(steps[0]) - 1)]) * 3 + steps:
        stragglers.on_agreement([*work, 1.0])
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


@pytest.mark.parametrize(
    ("steps", "rank", "named"),
    [
        ([[0.80, 0.849]] * JUDGED_STEPS, 0, False),
        ([[0.80, 0.851]] * JUDGED_STEPS, 0, True),  # above 5 % of a step
        ([[0.80, 0.851]] * JUDGED_STEPS, 1, False),  # only rank 0 prints
        ([[0.80, 0.851]] * (JUDGED_STEPS - 1), 0, False),  # too few steps
        ([[0.5, 0.9]] * 47 + [[0.51, 0.5]] * 17, 0, False),
        ([[0.5, 0.9]] * 48 + [[0.51, 0.5]] * 16, 0, True),  # last in three of four steps
        ([[1.0, math.nan]] * JUDGED_STEPS, 0, False),
        ([[1.0]] * JUDGED_STEPS, 0, False),  # a rank alone is compared with nobody
    ],
)
def test_when_a_rank_is_named(steps: list[list[float]], rank: int, named: bool) -> None:
    assert bool(record_of(steps, rank)[1]) == named


def test_each_line_is_about_steps_of_its_own() -> None:
    stragglers, said = make_stragglers(2)
    for step in range(3 + 140):
        stragglers.on_agreement([0.5, 0.9, 1.0])
        if step % 10 == 2:
            stragglers.on_log({})
    assert ["of the last 70 steps" in line for line in said] == [True, True]


class Device:
    """A clock of the host, and a device whose events stand at the time `at` and have passed if `passed` is true."""

    def __init__(self) -> None:
        self.now, self.at, self.passed = 0.0, 0.0, True

    def clock(self) -> float:
        return self.now

    def make_event(self) -> Any:
        event: Any = SimpleNamespace(query=lambda: self.passed)
        event.record = lambda: setattr(event, "at", self.at)
        event.elapsed_time = lambda end: 1000 * (end.at - event.at)
        return event


def make_step(stragglers: Stragglers, device: Device) -> list[float]:
    """0.5 s for data, two forward passes of 1 s on the host and 3 s on the device; 9 s in all. Returns the vote."""
    passes = ((1.0, "forward", 3.0), (1.0, "backward", 6.0)) * 2
    phases: Any = ((0.5, "data", 0.0), (4.0, "agreement", 0.0), *passes, (0.5, "optimizer", 0.0), (2.0, "save", 0.0))
    for seconds, phase, on_device in phases:
        stragglers.on_phase(phase)
        device.now += seconds
        device.at += on_device
    stragglers.on_step(9.0)
    return stragglers.on_vote(0)


def test_a_rank_votes_once_with_its_data_and_forward_passes() -> None:
    device = Device()
    stragglers, _ = make_stragglers(3, rank=1, clock=device.clock)
    for _ in range(2):
        assert make_step(stragglers, device) == [0.0, 2.5, 0.0, 3.0]
    assert math.isnan(stragglers.on_vote(0)[1]), "no step was made since"


def test_the_passes_of_a_device_are_never_waited_for() -> None:
    device = Device()
    stragglers, _ = make_stragglers(2, make_event=device.make_event, clock=device.clock)
    work = []
    for passed in (True, False, True):
        device.passed = passed
        work.append(make_step(stragglers, device)[0])
    assert work == pytest.approx([6.5, math.nan, 6.5], nan_ok=True)
