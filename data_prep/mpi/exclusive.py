"""Does a job once: alone on its output, and not at all where its result is complete."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_prep.mpi.executor import Ranks


@dataclass(frozen=True)
class Goal:
    """The result of a job.

    Attributes:
        output: what the user named.
        lock: the lock's file, see `common.files.locks`.
        scratch: directory of intermediate results. It stays behind where a job was killed.
        is_complete: whether the result is there. It raises UserError if another result is.
        clear: removes the intermediate results.
        found: the line to print if the result is there.
    """

    output: Path
    lock: Path
    scratch: Path
    is_complete: Callable[[], bool]
    clear: Callable[[], None]
    found: str


def reach(ranks: Ranks, goal: Goal, work: Callable[[], None]) -> None:
    """Calls `work` on all ranks unless the result is there. Rank 0 holds the lock meanwhile. Collective.

    Raises:
        UserError: another process works on the same output, or another result is there.
    """
    if ranks.on_root(lambda: goal.is_complete() and not goal.scratch.exists()):
        if ranks.is_root:
            print(goal.found)
        return
    with ranks.holding(goal.lock, goal.output):
        # Another process may have finished meanwhile, or was killed between the last file and the clearing.
        if not ranks.on_root(goal.is_complete):
            work()
        elif ranks.is_root:
            goal.clear()
            print(goal.found)
