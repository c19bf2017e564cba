"""The jobs that turn raw text into shards.

    python -m data_prep sample  --out DIR
    python -m data_prep extract --source {wikipedia,books,jsonl,hub} --input PATH... --out DIR
    python -m data_prep vocab   --documents DIR... --out FILE.model [--size 30000]
    python -m data_prep shards  --documents DIR... --vocab FILE.model --out DIR [--max-seq-length 512] [--seed 0]
    python -m data_prep verify DIR
    python -m data_prep stats DIR
    python -m data_prep show DIR [-n 3]

Each on several cores or hosts:

    mpirun -n 8 python -m data_prep shards --documents DIR... --vocab FILE.model --out DIR
    srun --mpi=pmix --ntasks=64 python -m data_prep shards ...

Any job that was interrupted goes on where it was when the same command is given again. Exit status: 0, or 2 for a
mistake that the one line printed explains.
"""

import argparse
import difflib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from data_prep.batch import explain_full_disk, launched_rank
from data_prep.command_line import Parser
from data_prep.errors import UserError

JOBS = {
    "sample": ("data_prep.sources.sample", "fetch a small real corpus to try things on"),
    "extract": ("data_prep.extract", "raw collections to documents of plain text"),
    "vocab": ("data_prep.train_vocabulary", "train a vocabulary on documents"),
    "shards": ("data_prep.make_shards", "documents to the rows that training reads"),
    "verify": ("data_prep.verify", "check every file of a shard set against its checksum"),
    "stats": ("data_prep.report", "tables and plots of a shard set"),
    "show": ("data_prep.show", "print rows as a person reads them"),
}
"""Each job's module, with `add_arguments(parser)` and `run(args)`, and its help. Only the wanted one is imported."""

ALONE = {"sample", "show"}
"""Jobs that rank 0 does while the others leave."""


def parse(arguments: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    """The module of the job that `arguments` name, and its arguments. UserError: a mistake of the user; SystemExit:
    after --help."""
    launch_commands = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(
        prog="python -m data_prep",
        description="Raw text to shards: offline jobs, each also under MPI.",
        epilog=launch_commands,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    if wanted is not None and wanted not in JOBS:
        near = difflib.get_close_matches(wanted, JOBS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(JOBS)}"
        raise UserError(f"unknown job {wanted}; {hint}")
    if wanted is not None and wanted != arguments[0]:
        raise UserError(f"{arguments[0]} stands before the job; put it behind {wanted}")
    for name, (module, description) in JOBS.items():
        job = jobs.add_parser(name, help=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == wanted:
            implementation = importlib.import_module(module)
            job.description = implementation.__doc__
            implementation.add_arguments(job)
            return implementation, job.parse_all(arguments[1:])
    if unknown := set(arguments) - {"-h", "--help"}:
        raise UserError(f"unknown argument {min(unknown)} before the job; choose one of {', '.join(JOBS)}")
    parser.parse_all(arguments)
    raise AssertionError("a parser without a job ends with --help, or with what is missing")


def main(arguments: Sequence[str]) -> None:
    """Runs the job that `arguments` name. UserError: a mistake of the user; SystemExit: after --help."""
    implementation, parsed = parse(arguments)
    if launched_rank() == 0 or arguments[0] not in ALONE:
        implementation.run(parsed)


def entry() -> int:
    """`main` for a shell: prints a user's mistake as one line, and returns the exit status."""
    for stream in (sys.stdout, sys.stderr):  # text that the terminal cannot spell must not end a job
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
        return 0
    except UserError as error:
        message = str(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader (head, less) has seen enough. What is left in the buffer must not be written at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        full = explain_full_disk(error)
        if full is None:
            raise
        message = str(full)
    except KeyboardInterrupt:
        print("interrupted; give the same command to go on", file=sys.stderr)
        return 130
    if launched_rank() == 0:
        print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(entry())
