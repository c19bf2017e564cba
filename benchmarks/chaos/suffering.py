"""Makes one fault after another, and measures what each of them costs."""

import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.chaos.faults import KINDS, Fault, matches
from benchmarks.chaos.training import Training, steps_made

SPACING = 25
"""Steps from one fault to the next."""
SETTLED = 5
"""Steps of one start before a fault. The hang watch gives the first two of a start 30 minutes."""
PATIENCE = 600.0
"""Seconds after which a fault counts as one that the run does not survive."""


_TORCH = re.compile(r"^[A-Z]\d{4} .*?\] (\[default\] )?")
"""How torch begins a line of its log."""


class NotSurvived(RuntimeError):
    """The run did not notice a fault, or did not go on after it. The message ends with what the hosts have printed."""


@dataclass(frozen=True)
class Cost:
    """What a fault cost.

    Attributes:
        kind, host: of the fault.
        step: the last one before it.
        line: that named it.
        noticed: seconds from the fault to the line.
        steps_again: steps that were made a second time.
        lost: seconds of training lost: from the fault until all hosts trained again and were further than before, less
            the time that the new steps of these seconds usually take.
    """

    kind: str
    host: str
    step: int
    line: str
    noticed: float
    steps_again: int
    lost: float


def suffer(training: Training, fault: Fault, number: int, seed: int) -> Cost:
    """Makes a fault once the run is far enough, waits until the run has come through it, and returns its cost.

    Args:
        number: of the fault, from 0.
    """
    kind, places = KINDS[fault.kind], training.places
    first_step = number * SPACING + random.Random(f"{seed} {number}").randrange(SPACING // 2)
    _wait(training, "the run before the fault", lambda: _trains(training, first_step))
    before = steps_made(places)
    usual = statistics.median(b.time - a.time for a, b in zip(before[-SETTLED - 1 :], before[-SETTLED:]))
    training.mark()
    began = time.time()
    kind.inject(training, fault.host)
    found: list[str] = []

    def is_noticed() -> bool:
        found[:] = [line for _, line in training.said() if matches(kind, fault.host, line)]
        return bool(found)

    _wait(training, f"a line about {fault.kind} on {fault.host}", is_noticed)
    noticed, peak = time.time(), max(made.step for made in steps_made(places))

    def is_over() -> bool:
        last = steps_made(places)[-1]
        return last.started > began and last.step > peak and last.ranks == len(training.present)

    _wait(training, f"the run after {fault.kind} on {fault.host}", is_over)
    after = steps_made(places)
    made = [one for one in after if one.time > before[-1].time]
    new_steps = after[-1].step - before[-1].step
    return Cost(
        fault.kind,
        fault.host,
        before[-1].step,
        _shown(training, found[0]),
        round(noticed - began, 2),
        len(made) - new_steps,
        round(max(0.0, after[-1].time - began - new_steps * usual), 2),
    )


def _shown(training: Training, line: str) -> str:
    """A line without torch's beginning, and without the places of this machine."""
    bare = _TORCH.sub("", line.strip())
    return bare.replace(str(training.places.root), "DIR").replace(sys.executable, "python")


def _trains(training: Training, step: int) -> bool:
    """Whether the ranks of all present hosts have made some steps together, and are behind `step`."""
    made = steps_made(training.places)[-SETTLED - 1 :]
    return (
        len(made) > SETTLED
        and made[-1].step >= step
        and made[-1].step - made[0].step == SETTLED
        and {(one.ranks, one.started) for one in made} == {(len(training.present), made[-1].started)}
        and time.time() - made[-1].time < 1.0
    )


def _wait(training: Training, what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline or (training.places.run / "done").exists():
            said = "\n".join(f"{name}: {line}" for name, line in training.said()[-60:])
            raise NotSurvived(f"never: {what}\n{said}")
        time.sleep(0.05)
