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
"""Steps that a line is about."""
_LAG = 2
"""Steps after which the events of a step are read; DeepSpeed waits for the device in every step."""
_WARM_UP = 3
"""Steps at the start that are left out: the first ones compile, allocate and read."""


class _Step(NamedTuple):
    """A step. `late`: by rank, the seconds by which it came after all others; negative where another one was last."""

    late: list[float]
    last_rank: int
    seconds: float


class Stragglers(Callback):
    """Compares the ranks over the steps of a logging interval."""

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._times = run, WorkTimes(_make_event if torch.cuda.is_available() else None)
        self._rank, world_size = run.control.rank, run.control.world_size
        self._nothing = [0.0] * (world_size if world_size > 1 else 0)
        self._warming_up = _WARM_UP
        self._interval: list[_Step] = []
        self._recent: deque[_Step] = deque(maxlen=JUDGED_STEPS)
        self._voted: StepTimes | None = None

    def enter(self, phase: Phase, micro_step: int = 0) -> None:
        """Times the phases, and leaves out steps with an evaluation or a save."""
        self._times.enter(phase)
        if phase in ("evaluation", "save"):
            self._times.leave_out()

    def vote(self, step: int) -> list[float]:
        """The seconds of this rank's own work in its place, and zeros elsewhere."""
        self._voted = self._times.end_step()
        vector = list(self._nothing)
        if vector:
            vector[self._rank] = math.nan if self._voted is None else self._voted.work
        return vector

    def agreed(self, sums: list[float]) -> None:
        """Adds a step: the seconds of each rank's own work; NaN if not known."""
        if self._voted is not None:
            self.add(sums, self._voted.whole)

    def add(self, work: Sequence[float], seconds: float) -> None:
        """Adds a step that took `seconds`, with the seconds of each rank's own work."""
        if not work or any(map(math.isnan, work)):
            return
        if self._warming_up:
            self._warming_up -= 1
            return
        second, first = sorted(work)[-2:]
        last_rank = work.index(first)
        late = [own - (second if rank == last_rank else first) for rank, own in enumerate(work)]
        step = _Step(late, last_rank, seconds)
        self._interval.append(step)
        self._recent.append(step)

    def log(self, record: dict[str, Any]) -> None:
        """Adds `last_rank`, `last_rank_share`, `last_rank_seconds` and `last_rank_cost`, and says who costs much."""
        record |= summarise(self._interval)
        self._interval = []
        if self._run.is_rank_0 and (line := self.line()):
            self._run.say(line)

    def line(self) -> str:
        """A line that names the rank that costs much in the last `JUDGED_STEPS` steps; "" if there is none.

        The steps of a line are forgotten, so that the next one is about later steps.
        """
        if len(self._recent) < JUDGED_STEPS:
            return ""
        found = summarise(self._recent)
        rank, share, cost = found["last_rank"], found["last_rank_share"], found["last_rank_cost"]
        if cost <= MIN_COST or share < MIN_SHARE:
            return ""
        self._recent.clear()
        return (
            f"rank {rank} on host {self._run.hosts[rank]} costs {100 * cost:.0f} % of the time: it comes last in "
            f"{100 * share:.0f} % of the last {JUDGED_STEPS} steps, on average {found['last_rank_seconds']:.3g} s "
            "after all others"
        )


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
        "last_rank_share": sum(step.last_rank == rank for step in steps) / len(steps),
        "last_rank_seconds": late[rank] / len(steps),
        "last_rank_cost": max(0.0, late[rank] / max(sum(step.seconds for step in steps), 1e-9)),
    }


class StepTimes(NamedTuple):
    """Times of a step on this rank, in seconds.

    Attributes:
        work: of the rank's own work.
        whole: of the whole step.
    """

    work: float
    whole: float


class _Window(NamedTuple):
    whole: float
    host: float
    events: list[tuple[Any, Any]]
    is_usual: bool


class WorkTimes:
    """Adds up the time of the rank's own work.

    Args:
        make_event: makes a torch.cuda.Event or one of another accelerator; None without one.
        clock: seconds.
    """

    def __init__(
        self, make_event: Callable[[], Any] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._make_event, self._clock = make_event, clock
        self._phase: str = "start"
        self._entered = 0.0
        self._before: Any = None
        self._windows: deque[_Window] = deque()
        self._start_step()

    def enter(self, phase: str) -> None:
        """Ends the present phase and begins another one."""
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

    def leave_out(self) -> None:
        """Leaves out the step in progress, because it has an evaluation or a save."""
        self._is_usual = False

    def end_step(self) -> StepTimes | None:
        """Ends a step and begins the next one.

        Returns:
            The times on a GPU of an earlier step, else of this one. None if they are not known.
        """
        self._windows.append(_Window(self._clock() - self._since, self._host, self._events, self._is_usual))
        self._start_step()
        if len(self._windows) <= (_LAG if self._make_event is not None else 0):
            return None
        window = self._windows.popleft()
        if not window.is_usual or not all(begin.query() and end.query() for begin, end in window.events):
            return None
        device = sum(begin.elapsed_time(end) for begin, end in window.events) / 1000
        return StepTimes(window.host + device, window.whole)

    def _start_step(self) -> None:
        self._since, self._host, self._is_usual = self._clock(), 0.0, True
        self._events: list[tuple[Any, Any]] = []


def _make_event() -> Any:
    return torch.cuda.Event(enable_timing=True)
