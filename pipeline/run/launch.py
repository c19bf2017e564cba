"""Runs one command on all ranks: rendezvous, validate, monitor, exit.

    find_rank -> Rendezvous.agree(prepare) -> Watch(Prepared.work) -> exit status

A command such as `pipeline.pretrain` has a function `prepare`, which checks the command line.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from common.errors import UserError
from common.files import places
from pipeline.checkpoint import mirror
from pipeline.distributed import launcher
from pipeline.distributed.rendezvous import Rendezvous, raise_file_limit
from pipeline.distributed.watch import Watch
from pipeline.engine import hardware
from pipeline.engine.ranks import find_rank, install_stand_ins


@dataclass(frozen=True)
class Prepared:
    """A command line that has been checked.

    Attributes:
        output: the directory of the run.
        facts: what all ranks must agree on, by name. Each rank reads the files of its own host, which may differ.
        work: does the work and returns the exit status. A mistake is a UserError.
        host_timeout: seconds without an answer after which a host counts as lost.
        hang_timeout: seconds without progress after which a rank counts as hanging, at least; 0 for never.
        finished: message if nothing is left to do; "" if something is.
    """

    output: Path
    facts: Mapping[str, str]
    work: Callable[[], int]
    host_timeout: float
    hang_timeout: float
    finished: str = ""


def run_command(
    parse: Callable[[Sequence[str]], Any], prepare: Callable[[Any, int], Prepared], argv: Sequence[str] | None = None
) -> int:
    """Runs a command line on this rank and returns the exit status. Every rank of the job must call it.

    Args:
        parse: reads the words of the command line. The result has `mirror`, and `output` unless that is None.
        prepare: checks what `parse` returns, for a number of ranks, and writes nothing. It imports DeepSpeed once it is
            called, when `parse` has found no mistake.
        argv: words of the command line; None for those of this process.
    """
    words = sys.argv[1:] if argv is None else argv
    install_stand_ins()
    try:
        if "RANK" in os.environ:  # a launcher started this process
            launcher.watch()
        hardware.check_accelerator()
        find_rank()
        world_size = int(os.environ["WORLD_SIZE"])
        raise_file_limit()
        hardware.limit_compile_threads()
        rendezvous = Rendezvous()
    except UserError as error:
        return _refuse_alone(error)

    def check() -> Prepared:
        try:
            args = parse(words)
            if args.mirror is not None:
                _restore(args.output, args.mirror, rendezvous.rank)
            return prepare(args, world_size)
        except OSError as error:
            if explained := places.explain(error):
                raise explained from None
            raise

    checked = rendezvous.agree(check, lambda prepared: prepared.facts)
    if checked.finished:
        if rendezvous.rank == 0:
            print(checked.finished)
        return 0
    try:
        watch = Watch(rendezvous, checked.output, checked.host_timeout, checked.hang_timeout)
        with watch:
            return checked.work()
    except UserError as error:
        report_user_error(error, rendezvous.rank)


def _restore(output: Path, url: str, rank: int) -> None:
    """Restores the run from its mirror. A mistake ends the job at once: others wait for what rank 0 restores."""
    try:
        mirror.restore(output, url, rank)
    except UserError as error:
        if rank == 0:
            report_user_error(error, 0)
        raise


def _refuse_alone(error: UserError) -> int:
    """Prints a mistake that this rank found before it met the others, and returns the exit status.

    The other ranks of the host find the same mistake. They wait, and the launcher ends them before they print it.
    """
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(5.0)
    print(f"error: {error}", file=sys.stderr, flush=True)
    return 2


def report_user_error(error: UserError, rank: int) -> NoReturn:
    """Prints the error as one line on rank 0 and exits with status 2.

    All ranks find the same mistake. The launcher kills the other ranks once one of them exits, so the others wait
    until rank 0 has printed.
    """
    if rank == 0:
        print(f"error: {error}", file=sys.stderr, flush=True)
    else:
        time.sleep(5.0)
    sys.exit(2)
