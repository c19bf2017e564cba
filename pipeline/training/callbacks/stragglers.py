"""Finds the rank whose own work takes longest, by how much, and how often.

A rank's own work in a step is its wait for data and its forward passes. Below ZeRO stage 3 neither has a collective, so
a rank never waits for another one in them. What follows, backward pass and update, does: there all ranks end together.
Every rank says how long its own work took. The numbers travel with those on which the ranks agree before a step, so no
collective is added, and no clock of another host is needed.

On a GPU an event is recorded before and after each forward pass, and read after the update, in which DeepSpeed waits
for the device. A step whose events have not passed then is left out.
"""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from pipeline.training.callback import Callback, Phase
from pipeline.training.state import TrainingRun

MIN_COST = 0.05
"""The part of the time above which a line names the rank."""
MIN_SHARE = 0.75
"""The part of the steps in which this rank must have come last: equal ranks of two come last in half of them."""
JUDGED_STEPS = 64
"""Steps that a line is about, at least."""
_WARM_UP = 3
"""Steps at the start that are left out: the first ones compile, allocate and read."""


class _Step(NamedTuple):
    """Seconds by which each rank came after all others (negative where another one was last), and of the step."""

    late: list[float]
    seconds: float


class Stragglers(Callback):
    """Compares the ranks over the steps of a logging interval.

    Args:
        make_event: makes a torch.cuda.Event or one of another accelerator; None without one.
        clock: seconds.
    """

    def __init__(
        self,
        run: TrainingRun,
        make_event: Callable[[], Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if make_event is None and torch.cuda.is_available():
            make_event = functools.partial(torch.cuda.Event, enable_timing=True)
        self._run, self._make_event, self._clock = run, make_event, clock
        self._warming_up = _WARM_UP
        self._interval: list[_Step] = []
        self._judged: list[_Step] = []
        self._phase, self._entered = "start", 0.0
        self._host, self._events = 0.0, list[Any]()
        self._made = math.nan, math.nan  # own work and duration of the last step; NaN if not known

    def on_phase(self, phase: Phase, micro_step: int = 0) -> None:
        """Times the wait for data and the forward passes."""
        now = self._clock()
        if self._phase == "data" or (self._phase == "forward" and self._make_event is None):
            self._host += now - self._entered
        if self._make_event is not None and "forward" in (self._phase, phase):
            self._events.append(self._make_event())
            self._events[-1].record()
        self._phase, self._entered = phase, now

    def on_step(self, seconds: float) -> None:
        """Adds up this rank's own work."""
        if all(event.query() for event in self._events):
            device = sum(begin.elapsed_time(end) for begin, end in zip(self._events[::2], self._events[1::2])) / 1000
            self._made = self._host + device, seconds
        self._host, self._events = 0.0, []

    def on_vote(self, step: int) -> list[float]:
        """The seconds of this rank's own work in its place, and its part of the mean duration of a step."""
        ranks = self._run.control.world_size
        own, seconds = self._made
        self._made = math.nan, math.nan
        return [*(own if rank == self._run.control.rank else 0.0 for rank in range(ranks)), seconds / ranks]

    def on_agreement(self, sums: list[float]) -> None:
        """Adds a step: the seconds of each rank's own work, and of the step."""
        *work, seconds = sums
        if len(work) == 1 or any(map(math.isnan, sums)):
            return
        if self._warming_up:
            self._warming_up -= 1
            return
        second, first = sorted(work)[-2:]
        last = work.index(first)
        late = [own - (second if rank == last else first) for rank, own in enumerate(work)]
        self._interval.append(_Step(late, seconds))

    def on_log(self, record: dict[str, Any]) -> None:
        """Adds `last_rank`, `last_rank_share`, `last_rank_seconds` and `last_rank_cost`, and says who costs much."""
        record |= summarise(self._interval)
        self._judged += self._interval
        self._interval = []
        if len(self._judged) < JUDGED_STEPS:
            return
        rank, share, seconds, cost = summarise(self._judged).values()
        if self._run.is_rank_0 and cost > MIN_COST and share >= MIN_SHARE:
            self._run.say(
                f"rank {rank} on host {self._run.hosts[rank]} costs {100 * cost:.0f} % of the time: it comes last in "
                f"{100 * share:.0f} % of the last {len(self._judged)} steps, on average {seconds:.3g} s after "
                "all others"
            )
        self._judged = []


def summarise(steps: Sequence[_Step]) -> dict[str, Any]:
    """Which rank cost most in these steps, and how much; {} without steps.

    Returns:
        `last_rank`, `last_rank_share` (of the steps in which it came last), `last_rank_seconds` (by which it came
        after all others, the mean over all steps; negative where another one came later), and `last_rank_cost` (these
        seconds as a fraction of a step).
    """
    if not steps:
        return {}
    late = [sum(seconds) for seconds in zip(*(step.late for step in steps))]
    rank = max(range(len(late)), key=late.__getitem__)
    return {
        "last_rank": rank,
        "last_rank_share": sum(step.late[rank] == max(step.late) for step in steps) / len(steps),
        "last_rank_seconds": late[rank] / len(steps),
        "last_rank_cost": max(0.0, late[rank] / max(sum(step.seconds for step in steps), 1e-9)),
    }
