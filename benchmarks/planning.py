"""Measures what many small files cost before the first work unit: planning, and "nothing to do" on a finished job.

    python -m benchmarks.planning [--files 100000] [--out benchmarks/results/planning_cpu]

The files are made in a temporary directory, a book of 150 bytes each, 1,000 in a folder. Planning opens and reads each
file once, for its fingerprint. So the baseline is a loop that only opens, reads and closes them. Both are measured in
turn in the same process, three times, after one turn that is not counted. Then `extract` runs twice as a user runs it.
Writes NAME.json and NAME.md.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.data_prep import job
from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from data_prep.sources.books import Books

FOLDER = 1000  # files in a folder
ROUNDS = 3


def make_books(directory: Path, files: int) -> list[str]:
    """Writes the books and returns their paths."""
    paths = []
    for number in range(files):
        folder = directory / f"{number // FOLDER:06d}"
        if number % FOLDER == 0:
            folder.mkdir(parents=True)
        path = folder / f"{number:09d}.txt"
        path.write_bytes(b"It was book %09d, and so it stayed. " % number * 4)
        paths.append(str(path))
    return paths


def read_seconds(paths: list[str]) -> float:
    """Processor seconds to open, read and close each file."""
    begun = time.process_time()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.read(descriptor, 1 << 20)
        os.close(descriptor)
    return time.process_time() - begun


def planning_seconds(directory: Path) -> float:
    """Processor seconds of planning."""
    begun = time.process_time()
    Books([directory], 16 << 20)
    return time.process_time() - begun


def measure(files: int, scratch: Path) -> dict[str, Any]:
    """Returns all measurements, in seconds and bytes."""
    paths = make_books(scratch / "books", files)
    rounds = [
        {"read": read_seconds(paths), "planning": planning_seconds(scratch / "books")} for _ in range(ROUNDS + 1)
    ][1:]
    command = ("extract", "--source", "books", "--input", scratch / "books", "--out", scratch / "documents")
    first, again, start = job(*command), job(*command), job("extract", "--help")
    return {
        "files": files,
        "rounds": rounds,
        "read": statistics.median(r["read"] for r in rounds),
        "planning": statistics.median(r["planning"] for r in rounds),
        "extract": first.cpu_seconds,
        "nothing_to_do": again.cpu_seconds,
        "start": start.cpu_seconds,
        "manifest_bytes": (scratch / "documents" / "documents.json").stat().st_size,
    }


def markdown(result: dict[str, Any]) -> str:
    """Returns the measurements as a table."""
    hardware, files = result["hardware"], result["files"]
    rows = [
        ("open, read and close each file", result["read"]),
        ("planning", result["planning"]),
        ("`extract`, first time", result["extract"]),
        ("`extract` again: nothing to do", result["nothing_to_do"]),
        ("`extract --help`: the start of a process", result["start"]),
    ]
    return "\n".join(
        [
            f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']} before; {result['date']}. "
            f"{files:,} files; seconds of processor time, median of {len(result['rounds'])} rounds for the first two.",
            "",
            "| | seconds | microseconds a file |",
            "|---|---|---|",
            *(f"| {name} | {seconds:.2f} | {1e6 * seconds / files:.1f} |" for name, seconds in rows),
            "",
            f"A file takes {result['manifest_bytes'] / files:.0f} bytes of `documents.json`.",
        ]
    )


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.planning", description=__doc__.splitlines()[0])
    p.add_argument("--files", type=int, default=100_000, metavar="N", help="(100000)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    if args.files < 1:
        raise UserError(f"--files is {args.files}; give 1 or more")
    with tempfile.TemporaryDirectory() as scratch:
        result = report.describe_host("planning 1") | measure(args.files, Path(scratch))
    report.publish(args.out, result, markdown(result), f"Planning many files, {result['hardware']['name']}")


if __name__ == "__main__":
    sys.exit(main())
