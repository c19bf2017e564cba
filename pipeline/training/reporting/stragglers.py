"""Finds the rank that arrives last at the collectives, how late it is, and how often.

In each step every rank says how long its own work took (`pipeline.distributed.collective_times`). The numbers travel
with those on which the ranks agree before a step, so no collective is added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.distributed.collective_times import StepTimes

COSTS_MUCH = 0.05
"""The part of the time above which a line names the rank."""
MAX_CHANCE = 1e-6
"""The probability with which equal ranks may give a line: at most one in a million intervals, on average."""
_MIN_JUDGED = 64
"""Steps that are judged together, if there are so many: those of the interval, or of several short ones."""
_WARM_UP = 3
"""Steps at the start that are left out: the first ones compile, allocate and read."""


@dataclass
class _Interval:
    """Steps of a logging interval.

    Attributes:
        late: by rank, the seconds by which it came after all others; negative where another one came later.
        seconds: of all steps.
        last: of each step, the rank that came last.
        margins: of each step, the seconds between the last rank and the one before.
    """

    late: list[float]
    seconds: float = 0.0
    last: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)


class Stragglers:
    """Compares the ranks over the steps of a logging interval.

    Args:
        rank, world_size: of this process.
        hosts: host name of each rank; needed on rank 0.
    """

    def __init__(self, rank: int, world_size: int, hosts: Sequence[str]) -> None:
        self._rank, self._hosts = rank, hosts
        self._nothing = [0.0] * (world_size if world_size > 1 else 0)
        self._warming_up = _WARM_UP
        self._interval = _Interval(list(self._nothing))
        self._recent: list[_Interval] = []

    def own_work(self, times: StepTimes | None) -> list[float]:
        """A vector with the seconds of this rank's own work in its place, and zeros elsewhere; to be summed over ranks.

        Args:
            times: of this rank in a step; None if they are not known.
        """
        vector = list(self._nothing)
        if vector:
            vector[self._rank] = math.nan if times is None else times.work
        return vector

    def add(self, work: Sequence[float], times: StepTimes | None) -> None:
        """Adds a step.

        Args:
            work: seconds of each rank's own work; NaN if not known.
            times: of this rank in the step.
        """
        if not work or times is None or any(map(math.isnan, work)):
            return
        if self._warming_up:
            self._warming_up -= 1
            return
        interval = self._interval
        interval.seconds += times.whole
        second, first = sorted(work)[-2:]
        last = work.index(first)
        interval.last.append(last)
        interval.margins.append(first - second)
        for rank, seconds in enumerate(work):
            interval.late[rank] += seconds - (second if rank == last else first)

    def metrics(self) -> dict[str, Any]:
        """Ends the interval: which rank cost most, and how much. Nothing if there were no steps to compare.

        Returns:
            `last_rank`, `last_rank_share` (of the steps in which it came last), `last_rank_seconds` (by which it came
            after all others, the mean over all steps; negative where another one came later), and `last_rank_cost`
            (these seconds as a fraction of a step).
        """
        ended, self._interval = self._interval, _Interval(list(self._nothing))
        if not ended.last:
            return {}
        self._recent.append(ended)
        while sum(len(interval.last) for interval in self._recent[1:]) >= _MIN_JUDGED:
            self._recent.pop(0)
        return _summary(ended)

    def line(self) -> str:
        """A line that names the rank that costs much in the last steps, unless it may be chance; else "".

        The steps of a line are forgotten, so that the next one is about later steps. Always "" on ranks other than 0.
        """
        if self._rank != 0 or not self._recent:
            return ""
        judged = _joined(self._recent)
        found = _summary(judged)
        rank = found["last_rank"]
        if (
            found["last_rank_cost"] <= COSTS_MUCH
            or chance(judged.last, judged.margins, rank, len(judged.late)) > MAX_CHANCE
        ):
            return ""
        self._recent = []
        return (
            f"rank {rank} on host {self._hosts[rank]} costs {100 * found['last_rank_cost']:.0f} % of the time: it "
            f"comes last in {100 * found['last_rank_share']:.0f} % of the last {len(judged.last):,} steps, on average "
            f"{found['last_rank_seconds']:.3g} s after all others"
        )


def _joined(intervals: Sequence[_Interval]) -> _Interval:
    return _Interval(
        [sum(late) for late in zip(*(interval.late for interval in intervals))],
        sum(interval.seconds for interval in intervals),
        [rank for interval in intervals for rank in interval.last],
        [margin for interval in intervals for margin in interval.margins],
    )


def _summary(interval: _Interval) -> dict[str, Any]:
    """See `Stragglers.metrics`."""
    steps, late = len(interval.last), interval.late
    rank = max(range(len(late)), key=late.__getitem__)
    return {
        "last_rank": rank,
        "last_rank_share": interval.last.count(rank) / steps,
        "last_rank_seconds": late[rank] / steps,
        "last_rank_cost": max(0.0, late[rank] / max(interval.seconds, 1e-9)),
    }


def chance(last: Sequence[int], margins: Sequence[float], rank: int, ranks: int) -> float:
    """An upper bound of the probability that equal ranks let one of them come last as `rank` does.

    Among equal ranks each one is the last of a step with probability 1 / `ranks`, whatever the noise. So the seconds by
    which one rank was the last are a sum of independent terms: the margin of the step, or nothing. It is a sign test
    in which a step counts by its margin. The tail is Chernoff's bound (1952), times the number of ranks.

    Args:
        last, margins: of each step, see `_Interval`.
        rank: that came last by the most seconds.
    """
    mean = sum(margins) / len(margins)
    if not mean:
        return 1.0
    own = sum(margin for who, margin in zip(last, margins) if who == rank)
    share = 1.0 / ranks
    exponents = []
    for power in range(-4, 11):
        scale = 2.0**power / mean
        logs = (scale * margin + math.log(share + (1 - share) * math.exp(-scale * margin)) for margin in margins)
        exponents.append(sum(logs) - scale * own)
    return ranks * math.exp(min(0.0, *exponents))
