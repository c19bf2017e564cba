"""Runs the jobs that turn raw text into shards.

    python -m data_prep sample  --out DIR
    python -m data_prep extract --source {wikipedia,books,text,jsonl,hub} --input PATH... --out DIR
    python -m data_prep vocab   --documents DIR... --out FILE.model [--size 30000]
    python -m data_prep shards  --documents DIR... --vocab FILE.model --out DIR [--max-seq-length 512] [--seed 0]
    python -m data_prep verify DIR
    python -m data_prep stats DIR
    python -m data_prep show DIR [-n 3]

extract, vocab, shards and verify can run on several cores or hosts:

    mpirun -n 8 python -m data_prep shards --documents DIR... --vocab FILE.model --out DIR
    srun --mpi=pmix --ntasks=64 python -m data_prep shards ...

An interrupted job continues when the same command is given again. Exit status: 0 for success, 2 for a mistake of the
user, which one line explains, 130 after Ctrl-C. After Ctrl-C at mpirun it is mpirun's own: 1 with Open MPI.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from common import PREFIX
from common.command_line import Parser, in_one_line
from common.environment import launched_rank
from common.errors import UserError
from common.text import did_you_mean
from data_prep.mpi import INTERRUPTED


class Command(NamedTuple):
    """A job of the command line."""

    module: str  # with `add_arguments(parser)` and `run(args)`. It is imported only if the job is asked for.
    summary: str  # one line of --help
    only_rank_0: bool = False  # whether rank 0 does the job alone, and the other ranks exit at once


JOBS = {
    "sample": Command("data_prep.sources.sample", "download a small real corpus to try things on", only_rank_0=True),
    "extract": Command("data_prep.jobs.extract", "turn raw collections into documents of plain text"),
    "vocab": Command("data_prep.jobs.train_vocabulary", "train a vocabulary on documents"),
    "shards": Command("data_prep.jobs.make_shards", "turn documents into the rows that training reads"),
    "verify": Command("data_prep.jobs.verify", "check every file of a directory against its manifest"),
    "stats": Command("data_prep.jobs.stats", "print what a shard set holds", only_rank_0=True),
    "show": Command("data_prep.jobs.show_rows", "print rows of a shard set as text", only_rank_0=True),
}
"""The jobs by name."""


def parse(arguments: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Returns the module of the job that `arguments` name, and its parsed arguments. SystemExit: after --help."""
    arguments = arguments or ["--help"]
    name = arguments[0]
    if name in JOBS:
        module = importlib.import_module(PREFIX + JOBS[name].module)
        parser = Parser(prog=f"python -m data_prep {name}", description=module.__doc__)
        module.add_arguments(parser)
        return module, parser.parse_all(arguments[1:])
    if name.startswith("-"):
        jobs = "\n".join(f"    {name:<8} {job.summary}" for name, job in JOBS.items())
        parser = Parser(prog="python -m data_prep", description=__doc__, epilog=jobs)
        parser.add_argument("job", metavar="JOB", help="one of these:")
        parser.parse_all(arguments)
    raise UserError(f"unknown job {name}; {did_you_mean(name, JOBS, 'choose one of ' + ', '.join(JOBS))}")


def main(arguments: Sequence[str]) -> None:
    """Runs the job that `arguments` name. Raises as `parse` does."""
    module, parsed = parse(arguments)
    if launched_rank() == 0 or not JOBS[arguments[0]].only_rank_0:
        module.run(parsed)


def entry() -> int:
    """Runs `main` for a shell: prints a user's mistake as one line, and returns the exit status."""
    try:
        rank = launched_rank()
    except UserError:  # `main` says so
        rank = 0
    try:
        return in_one_line(lambda: main(sys.argv[1:]), is_silent=rank != 0)
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(entry())
