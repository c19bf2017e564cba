"""Finds the rank that arrives last at the collectives, how late it is, and how often.

In each step every rank says how long its own work took (`pipeline.distributed.collective_times`). The numbers travel
with those on which the ranks agree before a step, so no collective is added.
"""

import math
from collections.abc import Sequence
from typing import Any

from pipeline.distributed.collective_times import StepTimes

COSTS_MUCH = 0.05
"""The part of the time above which a line names the rank."""
_WARM_UP = 3
"""Steps at the start that are left out: the first ones compile, allocate and read."""


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
        self._reset()

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
        self._steps += 1
        self._seconds += times.whole
        last = max(range(len(work)), key=work.__getitem__)
        first_two = sorted(work, reverse=True)[:2]
        self._times_last[last] += 1
        for rank, seconds in enumerate(work):
            self._late[rank] += seconds - first_two[rank == last]

    def metrics(self) -> dict[str, Any]:
        """Ends the interval: which rank cost most, and how much. Nothing if there were no steps to compare.

        Returns:
            `last_rank`, `last_rank_share` (of the steps in which it came last), `last_rank_seconds` (by which it came
            after all others, the mean over all steps; negative where another one came later), and `last_rank_cost`
            (these seconds as a fraction of a step).
        """
        found: dict[str, Any] = {}
        if self._steps:
            last = max(range(len(self._late)), key=self._late.__getitem__)
            found = {
                "last_rank": last,
                "last_rank_share": self._times_last[last] / self._steps,
                "last_rank_seconds": self._late[last] / self._steps,
                "last_rank_cost": max(0.0, self._late[last] / max(self._seconds, 1e-9)),
            }
        self._reset()
        return found

    def line(self, metrics: dict[str, Any]) -> str:
        """A line that names the rank of `metrics`, if it costs much; else "". Always "" on ranks other than 0."""
        if self._rank != 0 or metrics.get("last_rank_cost", 0.0) <= COSTS_MUCH:
            return ""
        rank = metrics["last_rank"]
        return (
            f"rank {rank} on host {self._hosts[rank]} costs {100 * metrics['last_rank_cost']:.0f} % of the time: it "
            f"comes last in {100 * metrics['last_rank_share']:.0f} % of the steps, on average "
            f"{metrics['last_rank_seconds']:.3g} s after all others"
        )

    def _reset(self) -> None:
        self._steps, self._seconds = 0, 0.0
        self._late, self._times_last = list(self._nothing), [0] * len(self._nothing)
