"""Runs a job on MPI ranks: hands out its work units, skips finished ones, and ends the job on all ranks.

    mpirun -n 8 python -m data_prep JOB ...      (or: srun --mpi=pmix python -m data_prep JOB ...)
    python -m data_prep JOB ...                  (one process; needs no MPI library)

Rank 0 hands out the units, the largest first, so that no large unit is left at the end.

Rank 0 works on units, too. With two ranks, a rank that only managed would waste half of the machine. So its main thread
takes units from the same queue, and a second thread makes all MPI calls while units are handed out. Nobody waits in a
blocking receive, which would spin and slow the other threads down. (mpi4py.futures was not used because its manager
does no work and does not know which units an earlier run finished.)

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from common.environment import whole_number
from common.errors import UserError
from common.files import locks
from common.files.places import explain
from common.progress import Progress
from data_prep.mpi.ledger import Ledger

WorkUnit = TypeVar("WorkUnit")
Record = TypeVar("Record")
Result = TypeVar("Result")

INTERRUPTED = "interrupted; give the same command to go on"
POLL_INTERVAL = 0.002  # seconds between two looks at the mailbox


def launched_size() -> int:
    """Returns the number of ranks that the launcher started, from its environment variables; 1 without a launcher.

    Raises:
        UserError: Slurm started several tasks without MPI, or a variable is no number.
    """
    environment = os.environ
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"):
        if name in environment:
            return whole_number(name, low=1)
    tasks = whole_number("SLURM_STEP_NUM_TASKS", low=1, default=1) if "SLURM_PROCID" in environment else 1
    if "PMIX_RANK" in environment:
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


@dataclass
class Ranks:
    """The processes that do one job together; `launch` makes it. All ranks call the same methods in the same order."""

    rank: int = 0
    size: int = 1
    communicator: Any = None  # mpi4py.MPI.Intracomm; None with one process
    _shared_error: BaseException | None = field(default=None, repr=False)

    @property
    def is_root(self) -> bool:
        return self.rank == 0

    def on_root(self, function: Callable[[], Result]) -> Result:
        """Calls `function` on rank 0. Every rank returns its (pickled) result, or raises its error."""
        if self.communicator is None:
            return function()
        result, error = None, None
        if self.is_root:
            try:
                result = function()
            except Exception as raised:
                error = raised
        self._wait_for_all()
        # Tracebacks and some exceptions cannot be pickled. Rank 0 raises the original, the others get its message.
        failed, result = self.communicator.bcast((str(error) if error else None, result), root=0)
        if failed is not None:
            self._shared_error = error or UserError(failed)
            raise self._shared_error
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
            work: does unit `units[index]`, called as `work(index, units[index])`, and returns its record. If records
                have an attribute `documents`, the progress line shows the sum.
            ledger: begun by rank 0 already; None to remember nothing.
            sizes: bytes of input of each unit. The largest units are done first; the progress counts these bytes.
            description: for the progress line.

        Returns:
            On rank 0 the records in the order of the units, on other ranks [].
        """

        def do_unit(index: int) -> Record:
            try:
                record = work(index, units[index])
                if ledger is not None:
                    ledger.write(index, record)
            except (OSError, MemoryError, RuntimeError) as error:
                raise explain(error) or error from error
            return record

        records: list[Record] = []
        with Progress(description, sum(sizes), "B", enabled=self.is_root) as progress:
            if self.is_root:
                queue = _WorkQueue(len(units), ledger, sizes, progress)
                self._do_and_hand_out(do_unit, queue)
                records = [queue.records[index] for index in range(len(units))]
            else:
                self._do_as_told(do_unit)
            self._wait_for_all()
        return records

    def _do_as_told(self, do_unit: Callable[[int], Any]) -> None:
        """Does the units that rank 0 names, until there are no more. Each request reports the unit before."""
        report: tuple[int, Any] | None = None
        while True:
            self.communicator.send(report, dest=0)
            self._wait_for_message()
            if (index := self.communicator.recv(source=0)) is None:
                return
            report = (index, do_unit(index))

    def _do_and_hand_out(self, do_unit: Callable[[int], Any], queue: "_WorkQueue") -> None:
        """Does units on rank 0, while a second thread hands units to the other ranks."""
        stop = threading.Event()
        with ThreadPoolExecutor(1, "hand-out") as pool:
            others = pool.submit(self._hand_out, queue, stop)
            try:
                while (index := queue.take()) is not None:
                    queue.finish(index, do_unit(index))
                others.result()
            except BaseException:
                stop.set()  # only one thread may be inside MPI when the job is aborted
                raise

    def _hand_out(self, queue: "_WorkQueue", stop: threading.Event) -> None:
        """Answers requests until each other rank knows that there are no more units."""
        working = self.size - 1
        while working and not stop.is_set():
            source = self._wait_for_message(stop)
            if source is not None:
                if (report := self.communicator.recv(source=source)) is not None:
                    queue.finish(*report)
                index = queue.take()
                self.communicator.send(index, dest=source)
                working -= index is None

    def _wait_for_message(self, stop: threading.Event | None = None) -> int | None:
        """Sleeps until there is a message, and returns its sender; None after `stop`."""
        from mpi4py import MPI

        status = MPI.Status()
        while not self.communicator.Iprobe(status=status):
            if stop is not None and stop.is_set():
                return None
            time.sleep(POLL_INTERVAL)
        return status.Get_source()

    def _wait_for_all(self) -> None:
        """A barrier that sleeps instead of spinning: a rank may have to wait for hours."""
        if self.communicator is not None:
            request = self.communicator.Ibarrier()
            while not request.Test():
                time.sleep(POLL_INTERVAL)


class _WorkQueue:
    """The units that are left, and the records of the finished ones. The two threads of rank 0 share it."""

    def __init__(self, count: int, ledger: Ledger[Any] | None, sizes: Sequence[int], progress: Progress) -> None:
        self.records: dict[int, Any] = {}
        self._sizes, self._progress = sizes, progress
        self._lock = threading.Lock()
        for index in range(count):
            if ledger is not None and (record := ledger.finished(index)) is not None:
                self.records[index] = record
        self._documents = sum(getattr(record, "documents", 0) for record in self.records.values())
        progress.resume(sum(sizes[index] for index in self.records), **self._shown())
        self._left = sorted(set(range(count)) - self.records.keys(), key=lambda index: (sizes[index], -index))

    def take(self) -> int | None:
        """Returns the index of the largest unit that is left; None if there is none."""
        with self._lock:
            return self._left.pop() if self._left else None

    def finish(self, index: int, record: Any) -> None:
        """Counts a unit as done."""
        with self._lock:
            self.records[index] = record
            self._documents += getattr(record, "documents", 0)
            self._progress.update(self._sizes[index], **self._shown())

    def _shown(self) -> dict[str, str]:
        return {"documents": f"{self._documents:,}"} if self._documents else {}


def run_job(
    ranks: Ranks,
    *,
    output: Path,
    lock: Path,
    scratch: Path,
    is_complete: Callable[[], bool],
    work: Callable[[], None],
    clear: Callable[[], None],
    complete_message: str,
) -> None:
    """Does a job that has one result, unless it is there. Rank 0 holds the lock meanwhile. All ranks call it.

    Args:
        output: what the user named.
        lock: the lock's file, see `common.files.locks`.
        scratch: directory of intermediate results. It stays behind where a run was killed.
        is_complete: whether the result is there. It raises UserError if another result is.
        work: makes the result, on all ranks.
        clear: removes the intermediate results.
        complete_message: the line to print if the result is there.
    Raises:
        UserError: another process works on the same output, another result is there, or the output is moved.
    """
    if ranks.on_root(lambda: is_complete() and not scratch.exists()):
        if ranks.is_root:
            print(complete_message)
        return
    with contextlib.ExitStack() as held:
        ranks.on_root(lambda: held.enter_context(locks.holding(lock, output)))
        if not ranks.is_root:
            held.enter_context(locks.watching(lock))
        # Another process may have finished meanwhile, or was killed between the last file and the clearing.
        if not ranks.on_root(is_complete):
            work()
        elif ranks.is_root:
            clear()
            print(complete_message)


@contextlib.contextmanager
def launch() -> Iterator[Ranks]:
    """Yields the ranks of this job, and ends all of them when one fails.

    After an error that every rank knows (see `Ranks.on_root`), only rank 0 raises it. After an error on a single rank,
    that rank prints it and aborts the job. The exit status is 2 for a UserError, else 1. After SIGINT in a rank it is
    130. Ctrl-C at mpirun ends the ranks by SIGTERM; then mpirun decides message and status, and Open MPI's is 1.
    """
    if launched_size() == 1:
        yield Ranks()
        return
    from mpi4py import MPI

    communicator = MPI.COMM_WORLD
    ranks = Ranks(communicator.rank, communicator.size, communicator)
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise UserError("this MPI library was built without threads; use another one, or run without mpirun")
    try:
        yield ranks
    except BaseException as error:
        if error is ranks._shared_error:
            if ranks.is_root:
                raise
            raise SystemExit(2 if isinstance(error, UserError) else 1) from None
        if isinstance(error, KeyboardInterrupt):
            if ranks.is_root:
                print(INTERRUPTED, file=sys.stderr, flush=True)
            communicator.Abort(130)
        if isinstance(error, UserError):
            print(f"error: rank {ranks.rank}: {error}", file=sys.stderr, flush=True)
        else:
            print(f"rank {ranks.rank} ends the job:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        communicator.Abort(2 if isinstance(error, UserError) else 1)
