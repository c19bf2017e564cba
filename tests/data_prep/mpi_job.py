"""A job for tests under mpirun: `python -m tests.data_prep.mpi_job DIR KIND`.

The units are the numbers 0 to 19; the record of n is n squared and the rank that did it, printed by rank 0 as JSON.
KIND: plain; endless (unit 0 never ends); error (unit 7 fails); panic
(a library in Rust fails at unit 7); root (rank 0 finds a mistake before the first unit).
"""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from common.errors import UserError
from data_prep import mpi
from data_prep.mpi import Ledger, UnitRecord, begin_job

UNITS = 20


@dataclass(frozen=True, kw_only=True)
class Squared(UnitRecord):
    square: int
    rank: int
    pid: int


class PanicException(BaseException):
    """What PyO3 raises is no Exception."""


def job(directory: Path, kind: str) -> None:
    def plan() -> list[int]:
        if kind == "root":
            raise UserError("nothing to work on; bring something")
        return list(range(UNITS))

    with mpi.launch() as ranks:
        units = ranks.on_root(plan)
        ledger = Ledger(directory, Squared, directory / mpi.UNITS)
        ranks.on_root(lambda: begin_job(directory, {"kind": kind}))

        def work(index: int, unit: int) -> Squared:
            if kind == "error" and unit == 7:
                raise RuntimeError("the seventh seal")
            if kind == "panic" and unit == 7:
                raise PanicException("the seventh seal")
            while kind == "endless" and unit == 0:
                time.sleep(0.01)
            return Squared(files=[], square=unit * unit, rank=ranks.rank, pid=os.getpid())

        records = ranks.run(units, work, ledger, sizes=[UNITS - n for n in units], description="job")
        if ranks.is_root:
            print(json.dumps([asdict(record) for record in records]))


if __name__ == "__main__":
    from data_prep import __main__ as command_line

    command_line.main = lambda arguments: job(Path(arguments[0]), arguments[1])  # its errors end like any job's
    sys.exit(command_line.entry())
