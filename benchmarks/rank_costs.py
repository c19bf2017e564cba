"""Measures where two ranks of data preparation spend more processor time than one.

    python -m benchmarks.rank_costs --books DIR --vocab FILE.model [--out benchmarks/results/rank_costs]

The books are divided into two halves of different books. Each job runs in four ways: on all books with one rank; on
each half with one rank, one after the other; on both halves at the same time; and on all books with two ranks under
mpirun. Each way adds one cost to the way before: what every process does for itself, such as encoding each different
word once; a busy second core; and MPI. The start is measured by running the same command again, when nothing is left to
do. `vocab` trains on one rank, so it runs only with one rank and with two.

The processor time is that of all processes, with mpirun. The rounds alternate between the ways. The table has the
medians. Writes NAME.json and NAME.md.
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

from benchmarks.data_prep import describe, job
from benchmarks.shared import report
from benchmarks.shared.entry_point import entry_point
from common.command_line import Parser
from common.errors import UserError
from data_prep.sources.books import find_books

HALVES = (0, 1)
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


def processor_seconds(name: str, inputs: Sequence[Path], words: Sequence[object], scratch: Path) -> dict[str, float]:
    """Runs one job in all ways, and the first and last of them once more for their starts.

    Args:
        name: of the job.
        inputs: two directories that the job reads.
        words: the rest of its command line.
        scratch: an empty directory.
    """
    flag = "--input" if name == "extract" else "--documents"

    def run(inputs: Sequence[Path], out: str, ranks: int = 1) -> float:
        return job(name, flag, *inputs, *words, "--out", scratch / out, ranks=ranks).cpu_seconds

    scratch.mkdir(parents=True)
    one, two = "one", "two"
    if name == "vocab":
        one, two = "one.model", "two.model"
    found = {"one": run(inputs, one)}
    if name != "vocab":
        found["apart"] = sum(run([inputs[half]], f"apart{half}") for half in HALVES)
        with ThreadPoolExecutor(len(HALVES)) as pool:
            found["together"] = sum(pool.map(lambda half: run([inputs[half]], f"together{half}"), HALVES))
    return found | {
        "two": run(inputs, two, ranks=2),
        "start_one": run(inputs, one),
        "start_two": run(inputs, two, ranks=2),
    }


def measure(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Returns the processor seconds of each job in each way and round."""
    halves = copy_halves(args.books, scratch / "books", args.copies)
    documents = [scratch / f"documents{half}" for half in HALVES]
    for half in HALVES:
        job("extract", "--source", "books", "--input", halves[half], "--out", documents[half])
    jobs: dict[str, tuple[Sequence[Path], Sequence[object]]] = {
        "extract": (halves, ("--source", "books")),
        "vocab": (documents, ("--sentences", args.sentences, "--size", TRAINED_PIECES)),
        "shards": (documents, ("--vocab", args.vocab)),
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for number in range(args.rounds):
        for name, (inputs, words) in jobs.items():
            rounds[name].append(processor_seconds(name, inputs, words, scratch / f"{name}{number}"))
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


def markdown(result: dict[str, Any]) -> str:
    """Returns the measurements as a table."""
    hardware = result["hardware"]
    found = {name: costs(rounds) for name, rounds in result["rounds"].items()}
    columns = list(found["shards"])
    return "\n".join(
        [
            f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']} before; {result['date']}. "
            f"Books of {result['bytes'] / 1e6:.1f} MB; seconds of processor time of all processes, median of "
            f"{len(result['rounds']['shards'])} rounds each.",
            "",
            f"| job | {' | '.join(columns)} |",
            "|---" * (len(columns) + 1) + "|",
            *(
                f"| `{name}` | "
                + " | ".join(f"{part[column]:.2f}" if column in part else "" for column in columns)
                + " |"
                for name, part in found.items()
            ),
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
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    for name in ("copies", "rounds", "sentences"):
        if (value := getattr(args, name)) < 1:
            raise UserError(f"--{name} is {value}; give 1 or more")
    with tempfile.TemporaryDirectory() as scratch:
        result = describe() | {"format": "rank_costs 1"} | measure(args, Path(scratch))
    report.publish(args.out, result, markdown(result), f"Processor time of two ranks, {result['hardware']['name']}")


if __name__ == "__main__":
    sys.exit(main())
