"""Decides from the reports of all ranks which of them hang.

All ranks enter the same collectives in the same order. So the ranks that have entered the fewest are those for which
the others wait. Only they can hang: the others wait rightly, however long. A rank that has not come hangs once its
record is older than the limit that the rank itself has set.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

STOPPED = ("T", "t")
"""States of a process in /proc that is stopped by a signal or by a debugger."""


class Report(NamedTuple):
    """What a watcher says about its rank.

    Attributes:
        phase, step, micro_step, collectives, limit: see `pipeline.distributed.monitor.progress.Record`.
        idle: seconds since the rank has last written its record.
        state: of its process, the letter in /proc.
    """

    phase: str
    step: int
    micro_step: int
    collectives: int
    limit: float
    idle: float
    state: str


def hanging(reports: Mapping[int, Report]) -> list[int]:
    """The ranks that hang, by rank; none if all is well.

    Args:
        reports: of every rank.
    """
    fewest = min(report.collectives for report in reports.values())
    awaited = {rank: report for rank, report in sorted(reports.items()) if report.collectives == fewest}
    if all(report.idle <= report.limit for report in awaited.values()):
        return []
    # The limits of the ranks differ a little, as their median steps do.
    late = [rank for rank, report in awaited.items() if report.idle > report.limit / 2]
    stopped = [rank for rank in late if reports[rank].state in STOPPED]
    return stopped or late


def describe(ranks: Sequence[int], reports: Mapping[int, Report], hosts: Sequence[str]) -> list[str]:
    """What is wrong: one line for each rank of `ranks`, at most eight.

    Args:
        hosts: host name of each rank.
    """
    waiting = sum(report.collectives > reports[ranks[0]].collectives for report in reports.values())
    lines = [f"{_where(rank, hosts)} hangs: {_what(reports[rank], waiting)}" for rank in ranks[:8]]
    if len(ranks) > 8:
        lines.append(f"and {len(ranks) - 8} more ranks hang")
    return lines


def _where(rank: int, hosts: Sequence[str]) -> str:
    return f"rank {rank} on host {hosts[rank]}"


def _what(report: Report, waiting: int) -> str:
    micro_step = f", micro-step {report.micro_step}" if report.micro_step else ""
    parts = [f"no progress for {report.idle:.0f} s in phase {report.phase} of step {report.step}{micro_step}"]
    if report.state in STOPPED:
        parts.append("its process is stopped")
    if report.state == "D":
        parts.append("it waits for a disk")
    if waiting:
        ranks = "1 other rank waits" if waiting == 1 else f"{waiting} other ranks wait"
        parts.append(f"{ranks} for it in collective {report.collectives + 1}")
    return "; ".join(parts)


def phase_line(rank: int, report: Report, hosts: Sequence[str]) -> str:
    """The state of a rank, for the file of its stacks."""
    return (
        f"{_where(rank, hosts)}: phase {report.phase}, step {report.step}, micro-step {report.micro_step}, "
        f"collectives entered {report.collectives}, no progress for {report.idle:.1f} s, process state {report.state}"
    )
