"""Finds the rank whose own work takes longest, by how much, and how often.

A rank's own work in a step is its wait for data and its forward passes. Below ZeRO stage 3 neither has a collective, so
a rank never waits for another one in them. What follows, backward pass and update, does: there all ranks end together.
In each step every rank says how long its own work took. The numbers travel with those on which the ranks agree before a
step, so no collective is added, and no clock of another host is needed.

On a GPU an event is recorded before a forward pass and one after it. The events are read later, when the device has
passed them.
"""

import math
import time
from collections import deque
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
_LAG = 2
"""Steps after which the events of a step are read; DeepSpeed waits for the device in every step."""
_WARM_UP = 3
"""Steps at the start that are left out: the first ones compile, allocate and read."""


class _Step(NamedTuple):
    """Seconds by which each rank came after all others (negative where another one was last), and of the step."""

    late: list[float]
    seconds: float


class _Window(NamedTuple):
    """Times of a step on this rank's host in seconds, and the events around its forward passes."""

    whole: float
    host: float
    events: list[tuple[Any, Any]]
    is_usual: bool


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
            make_event = _make_event
        self._run, self._make_event, self._clock = run, make_event, clock
        self._warming_up = _WARM_UP
        self._interval: list[_Step] = []
        self._judged: list[_Step] = []
        self._phase: str = "start"
        self._entered = 0.0
        self._before: Any = None
        self._windows: deque[_Window] = deque()
        self._seconds: float | None = None
        self._start_step()

    def on_phase(self, phase: Phase, micro_step: int = 0) -> None:
        """Times the phases, and leaves out steps with an evaluation or a save."""
        now = self._clock()
        if self._phase == "data" or (self._phase == "forward" and self._make_event is None):
            self._host += now - self._entered
        if self._make_event is not None and "forward" in (self._phase, phase):
            event = self._make_event()
            event.record()
            if self._phase == "forward":
                self._events.append((self._before, event))
            self._before = event
        self._phase, self._entered = phase, now
        if phase in ("evaluation", "save"):
            self._is_usual = False

    def on_vote(self, step: int) -> list[float]:
        """The seconds of this rank's own work in its place, NaN if not known, and zeros elsewhere.

        They are of this step; on a GPU of an earlier one.
        """
        self._windows.append(_Window(self._clock() - self._since, self._host, self._events, self._is_usual))
        self._start_step()
        ranks = self._run.control.world_size
        if ranks == 1:
            return []
        vector, self._seconds = [0.0] * ranks, None
        vector[self._run.control.rank] = math.nan
        if len(self._windows) > (0 if self._make_event is None else _LAG):
            window = self._windows.popleft()
            if window.is_usual and all(begin.query() and end.query() for begin, end in window.events):
                device = sum(begin.elapsed_time(end) for begin, end in window.events) / 1000
                vector[self._run.control.rank], self._seconds = window.host + device, window.whole
        return vector

    def on_agreement(self, sums: list[float]) -> None:
        """Adds a step: the seconds of each rank's own work."""
        if self._seconds is None or any(map(math.isnan, sums)):
            return
        if self._warming_up:
            self._warming_up -= 1
            return
        second, first = sorted(sums)[-2:]
        last = sums.index(first)
        late = [own - (second if rank == last else first) for rank, own in enumerate(sums)]
        self._interval.append(_Step(late, self._seconds))

    def on_log(self, record: dict[str, Any]) -> None:
        """Adds `last_rank`, `last_rank_share`, `last_rank_seconds` and `last_rank_cost`, and says who costs much."""
        record |= summarise(self._interval)
        self._judged += self._interval
        self._interval = []
        if len(self._judged) < JUDGED_STEPS:
            return
        found, steps = summarise(self._judged), len(self._judged)
        rank, share, cost = found["last_rank"], found["last_rank_share"], found["last_rank_cost"]
        self._judged = []
        if self._run.is_rank_0 and cost > MIN_COST and share >= MIN_SHARE:
            self._run.say(
                f"rank {rank} on host {self._run.hosts[rank]} costs {100 * cost:.0f} % of the time: it comes last in "
                f"{100 * share:.0f} % of the last {steps} steps, on average {found['last_rank_seconds']:.3g} s after "
                "all others"
            )

    def _start_step(self) -> None:
        self._since, self._host, self._is_usual = self._clock(), 0.0, True
        self._events: list[tuple[Any, Any]] = []


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


def _make_event() -> Any:
    return torch.cuda.Event(enable_timing=True)
