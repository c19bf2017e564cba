"""Measures how many rows a second one thread makes into batches.

    python -m benchmarks.batches --data shards/128 shards/512 [--rows 2048] [--rounds 9]
        [--out benchmarks/results/batches_cpu]

Rows are read through `Mixture.read` in batches of 64, in the order of training, for each objective with a sentence
loss. A second is one of the thread's processor time, which other load changes less than the wall clock.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from common.text import markdown_table
from data_prep.format.shards import block_checksums, open_shards, read_vocabulary
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import Mixture, open_mixture

BATCH = 64
OBJECTIVES = ("sop", "nsp")


def open_data(directory: Path, objective: Any) -> Mixture:
    """The shards in `directory` with the paper's masks. UserError: it holds none."""
    vocabulary = read_vocabulary(directory, open_shards(directory).manifest)
    return open_mixture([directory], [1], vocabulary.continues_word, objective, 0, MaskingSettings())


def rows_per_second(work: Callable[[], object], rows: int) -> float:
    """Rows that `work` makes in a second of this thread's processor time."""
    began = time.thread_time()
    work()
    return rows / (time.thread_time() - began)


def time_reading(mixture: Mixture, rows: int, rounds: int) -> dict[str, float]:
    """Median and best rows a second, and the median microseconds of a row that its checksum takes.

    Rounds with and without checksums take turns. Training reads with them.
    """
    shards = mixture.collators[0].shards
    expected = {
        file.name: block_checksums(shards.directory / file.name, file.rows) for file in shards.manifest.shards()
    }

    def read() -> None:
        for first in range(0, rows, BATCH):
            mixture.read(np.arange(first, first + BATCH))

    mixture.read(np.arange(BATCH))  # maps the shards
    checked, unchecked = [], []
    for _ in range(rounds):
        shards.expect(expected)
        checked.append(rows_per_second(read, rows))
        shards.expect({})
        unchecked.append(rows_per_second(read, rows))
    speed = statistics.median(checked)
    cost = 1e6 / speed - 1e6 / statistics.median(unchecked)
    return {"rows_per_second": speed, "best_rows_per_second": max(checked), "checksum_microseconds": cost}


def measure(directories: Sequence[Path], rows: int, rounds: int) -> dict[str, Any]:
    """The rows a second of each set of shards and each objective."""
    measured = []
    for directory in directories:
        for objective in OBJECTIVES:
            mixture = open_data(directory, objective)
            manifest = mixture.collators[0].shards.manifest
            about = {
                "positions": manifest.max_seq_length,
                "objective": objective,
                "pairs_per_row": manifest.counts.pairs / manifest.counts.rows,
            }
            measured.append(about | time_reading(mixture, rows, rounds))
    about_all = {"rounds": rounds, "rows": rows, "measurements": measured}
    return report.describe_host("batches 3", ("numpy",)) | about_all


def markdown(result: dict[str, Any]) -> str:
    """The measurements as a table."""
    hardware = result["hardware"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    rows = [
        (
            *(one["positions"], one["objective"], f"{one['pairs_per_row']:.2f}"),
            *(f"{one[name]:,.0f}" for name in ("rows_per_second", "best_rows_per_second")),
            f"{1e6 / one['rows_per_second']:.1f}",
            f"{one['checksum_microseconds']:.1f}",
        )
        for one in result["measurements"]
    ]
    return (
        f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']}; {versions}; {result['date']}.\n\n"
        + markdown_table(
            ("positions", "objective", "pairs in a row", "rows/s", "best", "us a row", "of these checksums"), rows
        )
        + f"\n\nRows in a second of one thread's processor time, in batches of {BATCH}: the median and the best of "
        f"{result['rounds']} rounds of {result['rows']:,} rows. Between them, rounds without checksums show what these "
        "take."
    )


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.batches", description=(__doc__ or "").splitlines()[0])
    p.add_argument("--data", nargs="+", type=Path, required=True, metavar="DIR", help="sets of shards")
    p.add_argument("--rows", type=int, default=2048, metavar="N", help="rows of a round (2048)")
    p.add_argument("--rounds", type=int, default=9, metavar="N", help="rounds (9)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    if min(args.rows, args.rounds) < 1:
        raise UserError("--rows and --rounds must be 1 or more")
    result = measure(args.data, args.rows, args.rounds)
    report.publish(args.out, result, markdown(result), f"Batches of one thread, {result['hardware']['name']}")


if __name__ == "__main__":
    sys.exit(main())
