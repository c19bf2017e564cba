"""Runs a job on MPI ranks: deals its work units out, skips finished ones, and ends the job on all ranks.

    mpirun -n 8 python -m data_prep JOB ...      (or: srun --mpi=pmix python -m data_prep JOB ...)
    python -m data_prep JOB ...                  (one process; needs no MPI library)

Each rank gets units of about as many bytes, and sends the record of each unit to rank 0 when it is done. The result
does not depend on which rank does a unit. Units and their files are named by the unit's index. Only rank 0 puts the
results together, in the order of the units.

So that a killed job can continue, it writes into the hidden directory `.units` of its output the options that decide
its result, and a done-file for each unit. Intermediate results are below it. All of it goes when the job is complete.
"""

import contextlib
import heapq
import json
import reprlib
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from common.environment import launched_size
from common.errors import UserError
from common.files import locks
from common.files.atomic import TEMPORARY, write_text
from common.files.checksums import FileEntry
from common.files.json_files import read_as, read_object
from common.files.places import explain, plain_name
from common.progress_bar import Progress

WorkUnit = TypeVar("WorkUnit")
Record = TypeVar("Record")
Result = TypeVar("Result")
Stored = TypeVar("Stored", bound="UnitRecord")

UNITS, OPTIONS, WRITER = ".units", "options.json", "python -m data_prep"
INTERRUPTED = "interrupted; give the same command to go on"
_CONTENTS = {
    "documents_digest": "documents",
    "compared_digest": "--dedup, --against or compared documents",
    "overlaps_digest": "--keep-similar, --held-out-of or held-out documents",
    "vocabulary_sha256": "--vocab",
}
POLL_INTERVAL = 0.002  # seconds between two looks at whether the other ranks are done


@dataclass(frozen=True, kw_only=True)
class UnitRecord:
    """The result of one work unit: the files that it wrote. Each job has a subclass with more."""

    files: Sequence[FileEntry]


def describe_differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describes the options that differ, shortened: "seed is 0 there, 1 was asked for"."""
    return "; ".join(
        f"other {_CONTENTS[name]} there"
        if name in _CONTENTS
        else f"{name} is {reprlib.repr(recorded.get(name))} there, {reprlib.repr(wanted.get(name))} was asked for"
        for name in dict.fromkeys([*wanted, *recorded])
        if recorded.get(name) != wanted.get(name)
    )


def check_same(output: Path, holds: str, recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises UserError if the options of what a complete `output` holds are not those that are wanted."""
    if differences := describe_differences(recorded, wanted):
        raise UserError(f"{output} holds {holds} ({differences}); give another --out or delete that directory")


class Ledger(Generic[Stored]):
    """The done-files of units, in `directory`; the files that the units write are in `output`, by default the same.

    A unit is finished if its record exists, and the files that the record names exist in `output` with the recorded
    sizes. Records are written after the files, both atomically. A record that cannot be read, or does not fit `kind`,
    does not count: its unit is done again.
    """

    def __init__(self, output: Path, kind: type[Stored], directory: Path | None = None) -> None:
        self.output, self._kind, self._directory = output, kind, directory or output

    def read_finished(self, units: int) -> dict[int, Stored]:
        """Returns the records of the finished ones of so many units, by their indices."""
        finished = {}
        for index in range(units):
            with contextlib.suppress(UserError):
                record = read_as(self._path(index), self._kind, "", extra="ignore")
                # Files of no use are deleted in the end (`end_job`), so no name may lead out of `output`.
                if all(plain_name(file.name, "") and file.is_in(self.output) for file in record.files):
                    finished[index] = record
        return finished

    def write(self, index: int, record: Stored) -> None:
        """Records unit `index` as done."""
        write_text(self._path(index), json.dumps(asdict(record)))

    def _path(self, index: int) -> Path:
        return self._directory / f"{index:06d}.json"


def begin_job(output: Path, options: Mapping[str, Any]) -> None:
    """Prepares `output` for a job, or for going on with an unfinished one. For one rank only.

    `options` are all that decides what it writes. A run that has not finished any unit is replaced by one with others,
    because nothing is lost. UserError: `output` holds something else, or an unfinished run with other options.
    """
    options = json.loads(json.dumps(options))
    directory = output / UNITS
    recorded = _read_options(directory)
    if recorded is None and not {path.name for path in output.iterdir()} <= {locks.LOCK}:
        raise UserError(f"{output} is not empty and holds no run to continue; use another --out or empty it")
    if recorded is not None and recorded != options:
        if any(directory.rglob("[0-9]*.json")):
            fault = f"holds an unfinished run of other options ({describe_differences(recorded, options)})"
            remedy = "use the same options to finish it, or another --out, or delete that directory"
            raise UserError(f"{output} {fault}; {remedy}")
        end_job(output)
    directory.mkdir(exist_ok=True)
    write_text(directory / OPTIONS, json.dumps({"writer": WRITER, "options": options}))
    for leftover in output.glob(".*.tmp"):
        if TEMPORARY.fullmatch(leftover.name) and leftover.is_file():
            leftover.unlink()  # written by a process that was killed


def end_job(output: Path, useless: Iterable[FileEntry] = ()) -> None:
    """Deletes the records of a job, and those of its files that are of no use."""
    directory = output / UNITS
    if not directory.is_symlink() and _read_options(directory) is not None:
        for file in useless:
            (output / file.name).unlink()
        shutil.rmtree(directory)


def _read_options(directory: Path) -> dict[str, Any] | None:
    """The options of the job that made `directory`; None if no job did, or they are damaged."""
    with contextlib.suppress(UserError):
        content = read_object(directory / OPTIONS, "")
        if content.get("writer") == WRITER and isinstance(options := content.get("options"), dict):
            return options
    return None


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
    if isinstance(error, KeyboardInterrupt):
        line, status = INTERRUPTED, 130
    elif (explained := explain(error)) is not None:
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
    try:
        yield ranks
    except SystemExit:  # all ranks end together
        raise
    except BaseException as error:
        ranks.communicator.Abort(_print_error(error, f"rank {ranks.rank}: "))
