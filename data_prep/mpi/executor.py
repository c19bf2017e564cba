"""Runs a job on MPI ranks: hands out its work units, skips finished ones, and ends the job on all ranks.

    mpirun -n 8 python -m data_prep JOB ...      (or: srun --mpi=pmix python -m data_prep JOB ...)
    python -m data_prep JOB ...                  (one process; needs no MPI library)

mpi4py.futures hands out the units, the largest first, so that no large unit is left at the end. Rank 0 works on units,
too: with two ranks, a rank that only managed would waste half of the machine. It takes back units that have not been
sent yet. Nobody waits in a blocking receive, which would spin and slow the other threads down.

The result does not depend on which rank does a unit. Units and their files are named by the unit's index. Only rank 0
puts the results together, in the order of the units.
"""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from common.environment import whole_number
from common.errors import UserError
from common.files import locks
from common.files.places import explain
from common.progress_bar import Progress
from data_prep.mpi.ledger import Ledger, discard_work

WorkUnit = TypeVar("WorkUnit")
Record = TypeVar("Record")
Result = TypeVar("Result")

INTERRUPTED = "interrupted; give the same command to go on"
POLL_INTERVAL = 0.002  # seconds between two looks at whether the other ranks have arrived


def launched_size() -> int:
    """Returns the number of ranks that the launcher started, from its environment variables; 1 without a launcher.

    Raises:
        UserError: Slurm started several tasks without MPI, or a variable is no number.
    """
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"):
        if name in os.environ:
            return whole_number(name, low=1)
    tasks = whole_number("SLURM_STEP_NUM_TASKS", low=1, default=1) if "SLURM_PROCID" in os.environ else 1
    if "PMIX_RANK" in os.environ:
        return max(2, tasks)  # PMIx has no variable for the number; any value above 1 will do
    if tasks > 1:
        raise UserError(
            f"srun started {tasks} tasks without MPI, and each would do the whole job; add --mpi=pmix (or pmi2) to srun"
        )
    return 1


def launched_rank() -> int:
    """Returns this process's rank, from the launcher's environment variables; 0 without a launcher. Needs no MPI."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        if name in os.environ:
            return whole_number(name)
    return 0


_assigned: dict[str, Callable[[int], Any]] = {}
"""`do`: does a unit of the list that the ranks share."""


def _do_assigned(index: int) -> Any:
    """Does unit `index` where mpi4py.futures has sent it. A function that it sends must have a global name."""
    return _assigned["do"](index)


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
                status = _report(error)
        # A barrier that sleeps instead of spinning: a rank may have to wait for hours.
        request = self.communicator.Ibarrier()
        while not request.Test():
            time.sleep(POLL_INTERVAL)
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
            sizes: bytes of input of each unit. The largest units are done first; the progress counts these bytes.
            description: for the progress line.

        Returns:
            On rank 0 the records in the order of the units, on other ranks [].
        """
        records: dict[int, Record] = {}
        if self.is_root and ledger is not None:
            finished = ((index, ledger.finished(index)) for index in range(len(units)))
            records = {index: record for index, record in finished if record is not None}
        lock = threading.Lock()  # two threads of rank 0 count what is done

        def do_unit(index: int) -> Record:
            with self.aborting():
                record = work(index, units[index])
                if ledger is not None:
                    ledger.write(index, record)
            return record

        def finish(index: int, future: "Future[Record] | None" = None) -> None:
            """Counts a unit that another rank has done, or does it here."""
            record = do_unit(index) if future is None else future.result()
            with lock:
                records[index] = record
                progress.update(sizes[index])

        with Progress(description, sum(sizes), "B", enabled=self.is_root) as progress:
            progress.resume(sum(sizes[index] for index in records))
            left = sorted(set(range(len(units))) - records.keys(), key=lambda index: (-sizes[index], index))
            if self.communicator is None:
                for index in left:
                    finish(index)
            else:
                self._share(left, do_unit, finish)
        return [records[index] for index in range(len(units))] if self.is_root else []

    def _share(self, indices: Sequence[int], do_unit: Callable[[int], Any], finish: Callable[..., None]) -> None:
        """Does the units of rank 0's `indices` on all ranks, in this order. Rank 0 calls `finish` for each."""
        from mpi4py.futures import MPICommExecutor

        _assigned["do"] = do_unit
        pool: Any
        with MPICommExecutor(self.communicator, main=False) as pool, self.aborting():
            if pool is None:  # another rank, whose units are done
                return
            futures = {index: pool.submit(_do_assigned, index) for index in indices}
            for index, future in futures.items():
                future.add_done_callback(lambda done, index=index: None if done.cancelled() else finish(index, done))
            for index, future in futures.items():
                if future.cancel():  # not sent yet
                    finish(index)
            for future in futures.values():
                if not future.cancelled():
                    future.result()  # raises what a rank raised

    @contextlib.contextmanager
    def aborting(self) -> Iterator[None]:
        """Prints an error in the block and ends the job on all ranks, unless they end together (`on_root`)."""
        try:
            yield
        except SystemExit:
            raise
        except BaseException as error:
            if self.communicator is not None:
                self.communicator.Abort(_report(error, f"rank {self.rank}: "))
            raise


def _report(error: BaseException, where: str = "") -> int:
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


def run_job(
    ranks: Ranks,
    *,
    output: Path,
    lock: Path,
    scratch: Sequence[Path],
    is_complete: Callable[[], bool],
    work: Callable[[], None],
) -> None:
    """Does a job that has one result, unless it is there. Rank 0 holds the lock meanwhile. All ranks call it.

    Args:
        output: what the user named.
        lock: the lock's file, see `common.files.locks`.
        scratch: directories of intermediate results. They stay behind where a run was killed.
        is_complete: whether the result is there. It raises UserError if another result is.
        work: makes the result, on all ranks.
    Raises:
        UserError: another process works on the same output, another result is there.
    """

    def is_done() -> bool:
        return is_complete() and not any(directory.exists() for directory in scratch)

    def clear() -> None:
        for directory in scratch:
            discard_work(directory)

    if not (was_done := ranks.on_root(is_done)):
        with contextlib.ExitStack() as held:
            ranks.on_root(lambda: held.enter_context(locks.holding(lock, output)))
            # Another process may have finished meanwhile, or was killed between the last file and the clearing.
            if not (was_done := ranks.on_root(is_complete)):
                work()
            ranks.on_root(clear)
    if was_done and ranks.is_root:
        print(f"{output} is complete; nothing to do")


@contextlib.contextmanager
def launch() -> Iterator[Ranks]:
    """Yields the ranks of this job, and ends all of them when one fails.

    A rank that fails prints why. The exit status is 2 for a UserError, else 1. After SIGINT in a rank it is 130. Ctrl-C
    at mpirun ends the ranks by SIGTERM; then mpirun decides message and status, and Open MPI's is 1.
    """
    if launched_size() == 1:
        yield Ranks()
        return
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise UserError("this MPI library was built without threads; use another one, or run without mpirun")
    ranks = Ranks(MPI.COMM_WORLD.rank, MPI.COMM_WORLD)
    with ranks.aborting():
        yield ranks
