"""Runs a job on MPI ranks: deals its work units out, skips finished ones, and ends the job on all ranks.

    mpirun -n 8 python -m data_prep JOB ...      (or: srun --mpi=pmix python -m data_prep JOB ...)
    python -m data_prep JOB ...                  (one process; needs no MPI library)

Each rank gets units of about as many bytes, and sends the record of each unit to rank 0 when it is done. The result
does not depend on which rank does a unit. Units and their files are named by the unit's index. Only rank 0 puts the
results together, in the order of the units.
"""

import contextlib
import heapq
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from common.environment import launched_size
from common.errors import UserError
from common.files import locks
from common.files.places import explain
from common.progress_bar import Progress
from data_prep.mpi.ledger import Ledger, end_job

WorkUnit = TypeVar("WorkUnit")
Record = TypeVar("Record")
Result = TypeVar("Result")

INTERRUPTED = "interrupted; give the same command to go on"
POLL_INTERVAL = 0.002  # seconds between two looks at whether the other ranks are done


def deal(sizes: Mapping[int, int], ranks: int) -> list[list[int]]:
    """Deals units to ranks: the largest first, each to the rank that has the fewest bytes so far."""
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0, rank) for rank in range(ranks)]  # a heap
    for index in sorted(sizes, key=lambda index: (-sizes[index], index)):
        load, rank = heapq.heappop(loads)
        dealt[rank].append(index)
        heapq.heappush(loads, (load + max(1, sizes[index]), rank))
    return dealt


def _wait(is_over: Callable[[], object]) -> None:
    """Waits asleep, because a rank may have to wait for hours. MPI's own waiting spins."""
    while not is_over():
        time.sleep(POLL_INTERVAL)


@dataclass
class Ranks:
    """The processes that do one job together; `launch` makes it. All ranks call the same methods in the same order."""

    rank: int = 0
    communicator: Any = None  # mpi4py.MPI.Intracomm; None with one process

    @property
    def is_root(self) -> bool:
        return self.rank == 0

    def on_root(self, function: Callable[[], Result]) -> Result:
        """Calls `function` on rank 0. Every rank returns its (pickled) result.

        If it fails under MPI, rank 0 prints why, and every rank raises SystemExit.
        """
        if self.communicator is None:
            return function()
        result, status = None, 0
        if self.is_root:
            try:
                result = function()
            except Exception as error:
                status = _print_error(error)
        _wait(self.communicator.Ibarrier().Test)
        result, status = self.communicator.bcast((result, status))
        if status:
            sys.exit(status)
        return result

    def run(
        self,
        units: Sequence[WorkUnit],
        work: Callable[[int, WorkUnit], Record],
        ledger: Ledger[Any] | None,
        *,
        sizes: Sequence[int],
        description: str,
    ) -> list[Record]:
        """Does every work unit that `ledger` does not record as finished.

        Args:
            units: the same list on every rank.
            work: does unit `units[index]`, called as `work(index, units[index])`, and returns its record.
            ledger: begun by rank 0 already; None to remember nothing.
            sizes: bytes of input of each unit, by which they are dealt out. The progress counts them.

        Returns on rank 0 the records in the order of the units, on other ranks [].
        """
        records: dict[int, Record] = ledger.read_finished(len(units)) if self.is_root and ledger else {}
        finished = self.on_root(lambda: set(records))
        left = {index: size for index, size in enumerate(sizes) if index not in finished}
        with Progress(description, sum(sizes), "B", enabled=self.is_root) as progress:
            progress.resume(sum(sizes) - sum(left.values()))

            def collect(index: int, record: Record) -> None:
                records[index] = record
                progress.update(sizes[index])

            def has_all() -> bool:
                while self.communicator is not None and (message := self.communicator.improbe()):
                    collect(*message.recv())
                return len(records) == len(units)

            sent = []
            for index in deal(left, self.communicator.size if self.communicator else 1)[self.rank]:
                record = work(index, units[index])
                if ledger is not None:
                    ledger.write(index, record)
                if self.is_root:
                    collect(index, record)
                    has_all()
                else:
                    sent.append(self.communicator.isend((index, record), 0))
            _wait(has_all if self.is_root else lambda: all(request.Test() for request in sent))
        return [records[index] for index in range(len(units))] if self.is_root else []


def _print_error(error: BaseException, where: str = "") -> int:
    """Prints an error, as one line if it is a mistake or the machine's. Returns the exit status."""
    explained = error if isinstance(error, UserError) else explain(error)
    if isinstance(error, KeyboardInterrupt):
        line, status = INTERRUPTED, 130
    elif explained is not None:
        line, status = f"error: {where}{explained}", 2
    else:
        line, status = f"{where}the job ends\n{''.join(traceback.format_exception(error))}", 1
    print(line, file=sys.stderr, flush=True)
    return status


def run_job(ranks: Ranks, output: Path, lock: Path, is_complete: Callable[[], bool], work: Callable[[], None]) -> None:
    """Makes `output` by `work`, on all ranks, unless it is complete. Rank 0 holds the lock meanwhile.

    UserError: another process works on the same output, or `is_complete` finds another result there.
    """
    with contextlib.ExitStack() as held:

        def begin() -> bool:
            held.enter_context(locks.holding(lock, output))
            return is_complete()

        if not (was_done := ranks.on_root(begin)):
            work()
        ranks.on_root(lambda: end_job(output))
    if was_done and ranks.is_root:
        print(f"{output} is complete; nothing to do")


def _say_interrupted() -> None:
    """From now on SIGTERM says on the terminal that the job is interrupted, and ends this process.

    After Ctrl-C mpirun sends it, and passes on nothing that a rank prints.
    """

    def answer(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):  # there is no terminal
            line = f"{' '.join(sys.argv[1:2])}: {INTERRUPTED}, unless an error is shown above"
            Path("/dev/tty").write_text(f"\n{line}\n", encoding="utf-8")
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, answer)


@contextlib.contextmanager
def launch() -> Iterator[Ranks]:
    """Yields the ranks of this job, and ends all of them when one fails.

    A rank that fails prints why. The exit status is 2 for a UserError, else 1. After SIGINT in a rank it is 130. Ctrl-C
    at mpirun ends the ranks by SIGTERM, and mpirun decides the status; Open MPI's is 1.
    """
    if launched_size() == 1:
        yield Ranks()
        return
    from mpi4py import MPI

    ranks = Ranks(MPI.COMM_WORLD.rank, MPI.COMM_WORLD)
    if ranks.is_root:
        _say_interrupted()
    try:
        yield ranks
    except SystemExit:  # all ranks end together
        raise
    except BaseException as error:
        ranks.communicator.Abort(_print_error(error, f"rank {ranks.rank}: "))
