"""Units of work over MPI ranks: who does what, what is done already, and how a job ends.

    mpirun -n 8 python -m data_prep JOB ...      (or: srun --mpi=pmix python -m data_prep JOB ...)
    python -m data_prep JOB ...                  (alone; needs no MPI library)

Rank 0 hands out units, the largest first, so that a slow unit holds up nobody; a rank has one at work and knows the
next. Rank 0 works too: with two ranks, a manager that did nothing else would waste half of the machine. It therefore
has a second thread, which makes all of its MPI calls while units are handed out, and sleeps between two looks at its
mailbox instead of spinning as a blocking receive would; that takes next to nothing from the unit that the main thread
works on. The main thread takes its own units from the same list. (mpi4py.futures keeps its manager out of the work, and
knows nothing of units that an earlier run has finished.)

Which rank does a unit decides nothing about the result: a unit is named by its index, its files by the index, and
only rank 0 puts results together, in the order of the units.
"""

import contextlib
import errno
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from data_prep.errors import UserError
from data_prep.ledger import Ledger, Record
from data_prep.progress import Progress

Unit = TypeVar("Unit")
Result = TypeVar("Result")

POLL_INTERVAL = 0.002  # seconds between two looks at the mailbox
_REQUEST, _ANSWER = 1, 2  # message tags
_NO_MORE = -1
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def launched_size() -> int:
    """How many ranks the launcher started, from its environment variables; 1 without a launcher.

    Raises:
        UserError: Slurm started several tasks that know nothing of each other.
    """
    environment = os.environ
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"):
        if name in environment:
            return int(environment[name])
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", 1)) if "SLURM_PROCID" in environment else 1
    if "PMIX_RANK" in environment:
        return max(2, tasks)  # PMIx does not say how many: MPI will
    if tasks > 1:
        raise UserError(
            f"srun started {tasks} tasks without MPI, and each would do the whole job; add --mpi=pmix (or pmi2) to srun"
        )
    return 1


def launched_rank() -> int:
    """The rank that the launcher gave this process, known before MPI is initialised; 0 without a launcher."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def explain_full_disk(error: OSError) -> UserError | None:
    """What to tell a person where `error` is about space on a disk, else None."""
    if error.errno not in _DISK_IS_FULL:
        return None
    place = f" at {error.filename}" if error.filename else ""
    return UserError(f"the disk is full{place} ({error.strerror}); free some space and give the same command to go on")


@dataclass
class Ranks:
    """The processes that do one job together, from `launch()`. All call the same methods in the same order."""

    rank: int = 0
    size: int = 1
    communicator: Any = None  # mpi4py.MPI.Intracomm, or None when alone
    _shared_error: BaseException | None = field(default=None, repr=False)

    @property
    def is_root(self) -> bool:
        return self.rank == 0

    def on_root(self, function: Callable[[], Result]) -> Result:
        """Calls `function` on rank 0 and returns its (pickled) result, or raises what it raised, on every rank."""
        if self.communicator is None:
            return function()
        result, error = None, None
        if self.is_root:
            try:
                result = function()
            except Exception as raised:
                error = raised
        self._wait_for_all()
        # A traceback cannot be sent, nor can every exception: rank 0 keeps its own and sends the message.
        failed, result = self.communicator.bcast((str(error) if error else None, result), root=0)
        if failed is not None:
            self._shared_error = error or UserError(failed)
            raise self._shared_error
        return result

    def run(
        self,
        units: Sequence[Unit],
        work: Callable[[int, Unit], Record],
        ledger: Ledger | None,
        *,
        sizes: Sequence[int],
        description: str,
    ) -> list[Record]:
        """Does every unit that `ledger` does not know as done.

        Args:
            units: the same list on every rank.
            work: does unit `units[index]` and returns its record. Where the record has "documents", the
                progress line shows their sum.
            ledger: begun already, by rank 0; None where there is nothing to remember.
            sizes: bytes of input of each unit: the largest go first, and progress counts them.
            description: for the progress line.

        Returns:
            On rank 0 the records in the order of the units, elsewhere [].
        """
        with Progress(description, sum(sizes), "B", enabled=self.is_root) as progress:
            if self.is_root:
                board = _Board(len(units), ledger, sizes, progress)
                self._do_and_hand_out(units, work, ledger, board)
                self._wait_for_all()
                return [board.records[index] for index in range(len(units))]
        self._work_through(units, work, ledger)
        self._wait_for_all()
        return []

    def _work_through(self, units: Sequence[Unit], work: Callable[[int, Unit], Record], ledger: Ledger | None) -> None:
        """Another rank: does units as long as there are any.

        It reports a unit and asks for the next but one before it begins the next: rank 0, at work itself, may take
        a while to answer.
        """
        request = self._request(None)
        index = self._answer()
        report: tuple[int, Record] | None = None
        while index != _NO_MORE:
            request.wait()
            request = self._request(report)
            report = (index, _do(index, units, work, ledger))
            index = self._answer()
        request.wait()
        self._request(report).wait()

    def _do_and_hand_out(
        self,
        units: Sequence[Unit],
        work: Callable[[int, Unit], Record],
        ledger: Ledger | None,
        board: "_Board",
    ) -> None:
        """Rank 0: works through units itself while a second thread hands others to the other ranks."""
        stop = threading.Event()
        failure: list[BaseException] = []

        def hand_out() -> None:
            try:
                self._hand_out(board, stop)
            except BaseException as error:
                failure.append(error)

        server = threading.Thread(target=hand_out, name="hand-out", daemon=True)
        if self.communicator is not None:
            server.start()
        try:
            while not failure and (index := board.take()) != _NO_MORE:
                board.finish(index, _do(index, units, work, ledger))
        except BaseException:
            stop.set()  # two threads must not be inside MPI when the job is aborted
            if ledger is not None and self.communicator is None:  # else another rank may be about to finish a unit
                ledger.abandon()
            raise
        finally:
            if server.is_alive():
                server.join()
        if failure:
            raise failure[0]

    def _hand_out(self, board: "_Board", stop: threading.Event) -> None:
        """Answers the other ranks until each has been told that there is no more, and has reported its last unit."""
        from mpi4py import MPI

        status = MPI.Status()
        at_work, dismissed = set(range(1, self.size)), set[int]()
        while at_work and not stop.is_set():
            if not self.communicator.Iprobe(source=MPI.ANY_SOURCE, tag=_REQUEST, status=status):
                time.sleep(POLL_INTERVAL)
                continue
            source = status.Get_source()
            report = self.communicator.recv(source=source, tag=_REQUEST)
            if report is not None:
                board.finish(*report)
            if source in dismissed:
                at_work.remove(source)
                continue
            index = board.take()
            self.communicator.send(index, dest=source, tag=_ANSWER)
            if index == _NO_MORE:
                dismissed.add(source)

    def _request(self, report: tuple[int, Record] | None) -> Any:
        """Another rank: reports the unit before and asks for one more. Returns MPI's request, to be waited for."""
        return self.communicator.isend(report, dest=0, tag=_REQUEST)

    def _answer(self) -> int:
        while not self.communicator.Iprobe(source=0, tag=_ANSWER):
            time.sleep(POLL_INTERVAL)
        return self.communicator.recv(source=0, tag=_ANSWER)

    def _wait_for_all(self) -> None:
        """A barrier that leaves the core to others meanwhile: rank 0 may be busy for hours between two units."""
        if self.communicator is not None:
            request = self.communicator.Ibarrier()
            while not request.Test():
                time.sleep(POLL_INTERVAL)


def _do(index: int, units: Sequence[Unit], work: Callable[[int, Unit], Record], ledger: Ledger | None) -> Record:
    try:
        record = work(index, units[index])
        if ledger is not None:
            ledger.write(index, record)
    except OSError as error:
        raise explain_full_disk(error) or error from error
    return record


class _Board:
    """Which units are left and what the finished ones gave; shared by the two threads of rank 0."""

    def __init__(self, count: int, ledger: Ledger | None, sizes: Sequence[int], progress: Progress) -> None:
        self.records: dict[int, Record] = {}
        self._sizes, self._progress = sizes, progress
        self._documents = 0
        self._lock = threading.Lock()
        for index in range(count):
            if ledger is not None and (record := ledger.finished(index)) is not None:
                self.records[index] = record
                self._documents += record.get("documents", 0)
        progress.resume(sum(sizes[index] for index in self.records), **self._figures())
        self._left = sorted(set(range(count)) - self.records.keys(), key=lambda i: (-sizes[i], i))
        self._left.reverse()

    def take(self) -> int:
        with self._lock:
            return self._left.pop() if self._left else _NO_MORE

    def finish(self, index: int, record: Record) -> None:
        with self._lock:
            self.records[index] = record
            self._documents += record.get("documents", 0)
            self._progress.update(self._sizes[index], **self._figures())

    def _figures(self) -> dict[str, str]:
        return {"documents": f"{self._documents:,}"} if self._documents else {}


@contextlib.contextmanager
def launch() -> Iterator[Ranks]:
    """The ranks of this job, and a common end for them.

    An error that every rank knows of (see `Ranks.on_root`) ends each of them with rank 0's exception alone; one
    that a single rank meets is printed by that rank, which then aborts the job: status 2 for a UserError, else 1.
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
                print("interrupted; give the same command to go on", file=sys.stderr, flush=True)
            communicator.Abort(130)
        if isinstance(error, UserError):
            print(f"error: rank {ranks.rank}: {error}", file=sys.stderr, flush=True)
        else:
            print(f"rank {ranks.rank} ends the job:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        communicator.Abort(2 if isinstance(error, UserError) else 1)
