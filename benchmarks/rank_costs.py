"""Measures where two ranks of data preparation spend more processor time than one, and how much faster they are.

    python -m benchmarks.rank_costs --books DIR --vocab FILE.model [--copies 10] [--jobs shards] \\
        [--out benchmarks/results/rank_costs]

The books are divided into two halves of different books. Each job runs in four ways: on all books with one rank; on
each half with one rank, one after the other; on both halves at the same time; and on all books with two ranks under
mpirun. Each way adds one cost to the way before: what every process does for itself, such as encoding each different
word once; a busy second core; and MPI. The start is measured by running the same command again, when nothing is left to
do. `vocab` trains on one rank, so it runs only with one rank and with two.

The processor time is that of all processes, with mpirun. The rounds alternate between the ways. The first table has
the medians. The second has the speed-up by wall-clock time, from the shortest run of each way, and the one that the
processor time allows if no rank ever waits (`speed_ups`). On a busy machine only the latter tells something. Writes
NAME.json and NAME.md.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.data_prep import Run, describe, job
from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from data_prep.sources.books import find_books

HALVES = (0, 1)
JOBS = ("extract", "vocab", "shards")
PROJECTED_RANKS = (2, 8)
TRAINED_SENTENCES, TRAINED_PIECES = 30_000, 8_000


def copy_halves(books: Path, directory: Path, copies: int) -> list[Path]:
    """Copies every second book into each of two directories, `copies` times. Returns the directories."""
    for number, (path, _) in enumerate(find_books(books)):
        for copy in range(copies):
            folder = directory / str(number % len(HALVES)) / str(copy)
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder)
    halves = [directory / str(half) for half in HALVES]
    if not halves[-1].is_dir():
        raise UserError(f"{books} holds one book; give a directory of two or more")
    return halves


def run_ways(name: str, inputs: Sequence[Path], words: Sequence[object], scratch: Path) -> dict[str, float]:
    """Runs one job in all ways, and the first and last of them once more for their starts.

    Args:
        name: of the job.
        inputs: two directories that the job reads.
        words: the rest of its command line.
        scratch: an empty directory.

    Returns:
        Processor seconds by way, and wall-clock seconds as "wall " with the way.
    """
    flag = "--input" if name == "extract" else "--documents"
    found: dict[str, float] = {}

    def run(inputs: Sequence[Path], out: str, ranks: int = 1) -> Run:
        return job(name, flag, *inputs, *words, "--out", scratch / out, ranks=ranks)

    def keep(way: str, runs: Sequence[Run]) -> None:
        found[way] = sum(r.cpu_seconds for r in runs)
        found[f"wall {way}"] = sum(r.seconds for r in runs)

    scratch.mkdir(parents=True)
    one, two = "one", "two"
    if name == "vocab":
        one, two = "one.model", "two.model"
    keep("one", [run(inputs, one)])
    if name != "vocab":
        keep("apart", [run([inputs[half]], f"apart{half}") for half in HALVES])
        with ThreadPoolExecutor(len(HALVES)) as pool:
            halves = list(pool.map(lambda half: run([inputs[half]], f"together{half}"), HALVES))
        keep("together", halves)
        found["wall together"] = max(r.seconds for r in halves)
    keep("two", [run(inputs, two, ranks=2)])
    keep("start_one", [run(inputs, one)])
    keep("start_two", [run(inputs, two, ranks=2)])
    return found


def measure(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Returns the seconds of each job in each way and round, see `run_ways`."""
    halves = copy_halves(args.books, scratch / "books", args.copies)
    documents = [scratch / f"documents{half}" for half in HALVES]
    for half in HALVES:
        job("extract", "--source", "books", "--input", halves[half], "--out", documents[half])
    jobs: dict[str, tuple[Sequence[Path], Sequence[object]]] = {
        "extract": (halves, ("--source", "books")),
        "vocab": (documents, ("--sentences", args.sentences, "--size", TRAINED_PIECES)),
        "shards": (documents, ("--vocab", args.vocab)),
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in args.jobs}
    for number in range(args.rounds):
        for name in args.jobs:
            inputs, words = jobs[name]
            rounds[name].append(run_ways(name, inputs, words, scratch / f"{name}{number}"))
            shutil.rmtree(scratch / f"{name}{number}")
    return {"bytes": sum(path.stat().st_size for half in halves for path in half.rglob("*.txt")), "rounds": rounds}


def costs(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Returns the medians over the rounds: one rank, two ranks, and the parts of the difference. All in seconds."""
    parts = []
    for r in rounds:
        start = r["start_two"] - r["start_one"]
        part = {"one rank": r["one"], "two ranks": r["two"], "start": start}
        if "apart" in r:
            part["own first words"] = r["apart"] - r["one"] - r["start_one"]
            part["second core busy"] = r["together"] - r["apart"]
            part["MPI, rest"] = (r["two"] - r["start_two"]) - (r["together"] - 2 * r["start_one"])
        else:
            part["MPI, rest"] = r["two"] - r["one"] - start
        parts.append(part)
    return {name: statistics.median(part[name] for part in parts) for name in parts[0]}


def speed_ups(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Returns how many times as fast as one rank several are.

    For N ranks, "by processor time" divides the time of one rank by that of the rank with most to do: its start, its
    share of the work, and its own first words, for which the second rank is the measure. The part of the work that rank
    0 does alone is in the start: it is planning. It says nothing about what waits for storage or for another rank.
    """
    median, least = (
        {name: choose(r[name] for r in rounds) for name in rounds[0]} for choose in (statistics.median, min)
    )
    found = {
        "two ranks, wall": least["wall one"] / least["wall two"],
        "without starts": (least["wall one"] - least["wall start_one"]) / (least["wall two"] - least["wall start_two"]),
    }
    if "apart" in median:
        found["two processes, wall"] = (least["wall apart"] - 2 * least["wall start_one"]) / (
            least["wall together"] - least["wall start_one"]
        )
        work = median["one"] - median["start_one"]
        words = max(0.0, median["apart"] - median["one"] - median["start_one"])
        for ranks in PROJECTED_RANKS:
            share = (work + (ranks - 1) * words) / ranks
            found[f"{ranks} ranks, by processor time"] = median["one"] / (median["start_two"] / 2 + share)
            found[f"{ranks} without starts"] = work / share
    return found


def table(rows: dict[str, dict[str, float]]) -> list[str]:
    """Returns one row for each job, as lines of Markdown."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    return [
        f"| job | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
        *(
            f"| `{name}` | " + " | ".join(f"{row[column]:.2f}" if column in row else "" for column in columns) + " |"
            for name, row in rows.items()
        ),
    ]


def markdown(result: dict[str, Any]) -> str:
    """Returns the measurements as tables."""
    hardware, rounds = result["hardware"], result["rounds"]
    return "\n".join(
        [
            f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']} before; {result['date']}. "
            f"Books of {result['bytes'] / 1e6:.1f} MB; seconds of processor time of all processes, median of "
            f"{max(map(len, rounds.values()))} rounds each.",
            "",
            *table({name: costs(found) for name, found in rounds.items()}),
            "",
            'Times as fast as one rank. "Wall" is of the shortest runs; "two processes" are two jobs of one rank each, '
            "beside each other, which is what the machine allows.",
            "",
            *table({name: speed_ups(found) for name, found in rounds.items()}),
        ]
    )


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.rank_costs", description=__doc__.splitlines()[0])
    p.add_argument("--books", required=True, type=Path, metavar="DIR", help="two or more text files, one book each")
    p.add_argument("--vocab", required=True, type=Path, metavar="FILE", help="a .model file")
    p.add_argument("--copies", type=int, default=2, metavar="N", help="copies of the books (2)")
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="(3)")
    p.add_argument("--sentences", type=int, default=TRAINED_SENTENCES, metavar="N", help=f"({TRAINED_SENTENCES})")
    p.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, help="jobs to measure (all)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    for name in ("copies", "rounds", "sentences"):
        if (value := getattr(args, name)) < 1:
            raise UserError(f"--{name} is {value}; give 1 or more")
    with tempfile.TemporaryDirectory() as scratch:
        result = describe() | {"format": "rank_costs 2"} | measure(args, Path(scratch))
    report.publish(args.out, result, markdown(result), f"Two ranks beside one, {result['hardware']['name']}")


if __name__ == "__main__":
    sys.exit(main())
