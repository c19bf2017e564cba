"""One CSV file for each curve: `step` and the curve's name, as DeepSpeed's csv_monitor writes them."""

import errno
import os
import re
from pathlib import Path

from common.files import atomic
from pipeline.tracking.tracker import JsonBlock, Scalars, Service, TrackedRun

_UNSAFE = re.compile(r"[^\w.-]+")


class CsvFiles(Service):
    """Appends scalars to `train_loss.csv` and so on, in the run's csv/ or in output_path/job_name of the block.

    Rows of later steps than the run's are dropped.

    Raises:
        FileExistsError: the directory holds the scalars of another run.
    """

    block = "csv_monitor"
    keeps_records = False

    def __init__(self, run: TrackedRun, block: JsonBlock) -> None:
        given = block.get("output_path")
        directory = Path(given) / run.job_name(block) if given else run.directory / "csv"
        place = os.path.abspath(directory)
        if directory.is_relative_to(run.directory):  # a run may be moved or copied
            place = str(directory.relative_to(run.directory))
        there = sorted(directory.glob("*.csv"))
        if run.id_of("csv") not in (place, os.path.abspath(directory)):
            if there:
                raise FileExistsError(f"{directory} holds CSV files of another run; choose another output_path")
            run.remember("csv", place)
        directory.mkdir(parents=True, exist_ok=True)
        for path in there:
            _keep_until(path, run.step or -1)  # a start from step 0 writes the points of step 0 again
        self._directory = directory

    def log(self, scalars: Scalars) -> None:
        """Appends a row to the file of each curve."""
        for tag, value in scalars.values.items():
            path = self._directory / f"{_UNSAFE.sub('_', tag)}.csv"
            with path.open("ab", buffering=0) as file:
                size = file.tell()
                header = "" if size else f"step,{_UNSAFE.sub('_', tag.rpartition('/')[2])}\n"
                row = f"{header}{scalars.step},{value!r}\n".encode()
                if file.write(row) < len(row):  # the next row would be joined to the half of this one
                    file.truncate(size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def close(self, finished: bool) -> None:
        """Nothing waits: every row is in its file."""


def _keep_until(path: Path, step: int) -> None:
    """Drops the rows of later steps, and a last row that a kill cut short. A file without a whole header is removed."""
    header, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True) or [""]
    if not header.endswith("\n"):
        path.unlink()
        return
    kept = [row for row in rows if row.endswith("\n") and row.partition(",")[0].isdigit()]
    atomic.write_text(path, header + "".join(row for row in kept if int(row.partition(",")[0]) <= step))
