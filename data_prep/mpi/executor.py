"""Runs a job on MPI ranks: hands out its work units, skips finished ones, and ends the job on all ranks.

    mpirun -n 8 python -m data_prep JOB ...      (or: srun --mpi=pmix python -m data_prep JOB ...)
    python -m data_prep JOB ...                  (one process; needs no MPI library)

Rank 0 hands out the units, the largest first, so that no large unit is left at the end. Every rank works on one unit
and already knows its next one.

Rank 0 works on units, too. With two ranks, a rank that only managed would waste half of the machine. So its main thread
takes units from the same queue, and a second thread makes all MPI calls while units are handed out. That thread sleeps
between two looks at its mailbox: a blocking receive would spin and slow the main thread down. (mpi4py.futures was not
used because its manager does no work and does not know which units an earlier run finished.)

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from common.environment import whole_number
from common.errors import UserError
from common.files import locks
from common.files.places import FULL, explain
from common.progress import Progress
from data_prep.mpi.ledger import Ledger

WorkUnit = TypeVar("WorkUnit")
Record = TypeVar("Record")
Result = TypeVar("Result")

INTERRUPTED = "interrupted; give the same command to go on"
POLL_INTERVAL = 0.002  # seconds between two looks at the mailbox
_REQUEST, _ANSWER = 1, 2  # message tags
_NO_MORE = -1


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


def explain_full_disk(error: OSError) -> UserError | None:
    """Returns a UserError if `error` means that a disk or quota is full, else None."""
    if error.errno not in FULL:
        return None
    place = f" at {error.filename}" if error.filename else ""
    return UserError(f"the disk is full{place} ({error.strerror}); free some space and give the same command to go on")


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
            except OSError as error:
                raise explain_full_disk(error) or explain(error) or error from error
            return record

        records: list[Record] = []
        with Progress(description, sum(sizes), "B", enabled=self.is_root) as progress:
            if self.is_root:
                queue = _WorkQueue(len(units), ledger, sizes, progress)
                try:
                    self._do_and_hand_out(do_unit, queue)
                except BaseException:
                    if ledger is not None and self.communicator is None:  # else another rank may just finish a unit
                        ledger.abandon()
                    raise
                records = [queue.records[index] for index in range(len(units))]
            else:
                self._do_as_told(do_unit)
            self._wait_for_all()
        return records

    def _do_as_told(self, do_unit: Callable[[int], Any]) -> None:
        """Does the units that rank 0 names, until there are no more.

        A rank reports a finished unit, and requests the unit after the next, before it begins the next one. So it does
        not wait if rank 0 answers late.
        """
        request = self._request(None)
        index = self._answer()
        report: tuple[int, Any] | None = None
        while index != _NO_MORE:
            request.wait()
            request = self._request(report)
            report = (index, do_unit(index))
            index = self._answer()
        request.wait()
        self._request(report).wait()

    def _do_and_hand_out(self, do_unit: Callable[[int], Any], queue: "_WorkQueue") -> None:
        """Does units on rank 0, while a second thread hands units to the other ranks."""
        stop = threading.Event()
        failures: list[BaseException] = []

        def hand_out() -> None:
            try:
                self._hand_out(queue, stop)
            except BaseException as error:
                failures.append(error)

        server = threading.Thread(target=hand_out, name="hand-out", daemon=True)
        if self.communicator is not None:
            server.start()
        try:
            while not failures and (index := queue.take()) != _NO_MORE:
                queue.finish(index, do_unit(index))
        except BaseException:
            stop.set()  # only one thread may be inside MPI when the job is aborted
            raise
        finally:
            if server.is_alive():
                server.join()
        if failures:
            raise failures[0]

    def _hand_out(self, queue: "_WorkQueue", stop: threading.Event) -> None:
        """Answers requests until each other rank knows that there are no more units, and has reported its last."""
        from mpi4py import MPI

        status = MPI.Status()
        working, dismissed = set(range(1, self.size)), set[int]()
        while working and not stop.is_set():
            if not self.communicator.Iprobe(source=MPI.ANY_SOURCE, tag=_REQUEST, status=status):
                time.sleep(POLL_INTERVAL)
                continue
            source = status.Get_source()
            report = self.communicator.recv(source=source, tag=_REQUEST)
            if report is not None:
                queue.finish(*report)
            if source in dismissed:
                working.remove(source)
                continue
            index = queue.take()
            self.communicator.send(index, dest=source, tag=_ANSWER)
            if index == _NO_MORE:
                dismissed.add(source)

    def _request(self, report: tuple[int, Any] | None) -> Any:
        """Reports a finished unit to rank 0 and requests another. Returns MPI's request object, to wait for."""
        return self.communicator.isend(report, dest=0, tag=_REQUEST)

    def _answer(self) -> int:
        while not self.communicator.Iprobe(source=0, tag=_ANSWER):
            time.sleep(POLL_INTERVAL)
        return self.communicator.recv(source=0, tag=_ANSWER)

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

    def take(self) -> int:
        """Returns the index of the largest unit that is left, or _NO_MORE."""
        with self._lock:
            return self._left.pop() if self._left else _NO_MORE

    def finish(self, index: int, record: Any) -> None:
        """Counts a unit as done."""
        with self._lock:
            self.records[index] = record
            self._documents += getattr(record, "documents", 0)
            self._progress.update(self._sizes[index], **self._shown())

    def _shown(self) -> dict[str, str]:
        return {"documents": f"{self._documents:,}"} if self._documents else {}


@dataclass(frozen=True)
class Job:
    """A job that has one result, and that an interrupted run can continue.

    Attributes:
        output: what the user named.
        lock: the lock's file, see `common.files.locks`.
        scratch: directory of intermediate results. It stays behind where a run was killed.
        is_complete: whether the result is there. It raises UserError if another result is.
        work: makes the result, on all ranks.
        clear: removes the intermediate results.
        complete_message: the line to print if the result is there.
    """

    output: Path
    lock: Path
    scratch: Path
    is_complete: Callable[[], bool]
    work: Callable[[], None]
    clear: Callable[[], None]
    complete_message: str


def run_job(job: Job, ranks: Ranks) -> None:
    """Does a job unless its result is there. Rank 0 holds the lock meanwhile. All ranks call it.

    Raises:
        UserError: another process works on the same output, another result is there, or the output is moved.
    """
    if ranks.on_root(lambda: job.is_complete() and not job.scratch.exists()):
        if ranks.is_root:
            print(job.complete_message)
        return
    with contextlib.ExitStack() as held:
        ranks.on_root(lambda: held.enter_context(locks.holding(job.lock, job.output)))
        if not ranks.is_root:
            held.enter_context(locks.watching(job.lock))
        # Another process may have finished meanwhile, or was killed between the last file and the clearing.
        if not ranks.on_root(job.is_complete):
            job.work()
        elif ranks.is_root:
            job.clear()
            print(job.complete_message)


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
