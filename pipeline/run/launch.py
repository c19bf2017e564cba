"""Runs one command on all ranks: rendezvous, validate, monitor, exit.

    find_rank -> Rendezvous.agree(start.check) -> Watch(start.train_all) -> exit status

A command such as `pipeline.pretrain` has a function `make_tasks`, which makes the runs of a command line.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.files import places
from pipeline.distributed import launcher
from pipeline.distributed.rendezvous import Rendezvous, find_rank, raise_file_limit
from pipeline.distributed.watch import Watch
from pipeline.engine import hardware

if TYPE_CHECKING:
    from pipeline.training.training_task import TrainingTask


def run_command(
    parse: Callable[[Sequence[str]], Any],
    make_tasks: "Callable[[Any, int], Sequence[TrainingTask]]",
    argv: Sequence[str] | None = None,
) -> int:
    """Runs a command line on this rank and returns the exit status. Every rank of the job must call it.

    Args:
        parse: reads the words of the command line. The result is a `RunFlags`.
        make_tasks: checks what `parse` returns, for a number of ranks, and writes nothing: the runs, one for each
            seed. It imports DeepSpeed once it is called, when `parse` has found no mistake.
        argv: None for the words of this process.
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        if "RANK" in os.environ:  # a launcher started this process
            launcher.watch()
        hardware.check_accelerator()
        find_rank()
        raise_file_limit()
        hardware.limit_compile_threads()
        rendezvous = Rendezvous()
    except UserError as error:
        return _refuse(error, waits=os.environ.get("LOCAL_RANK", "0") != "0")

    def check() -> "tuple[Any, Sequence[TrainingTask], Mapping[str, str], bool]":
        try:
            flags = parse(words)
            if flags.deterministic:
                hardware.make_deterministic()
            tasks = make_tasks(flags, rendezvous.world_size)

            from pipeline.run import start

            return flags, tasks, start.check(flags, tasks), start.is_finished(flags, tasks)
        except OSError as error:
            if explained := places.explain(error):
                raise explained from None
            raise

    flags, tasks, facts, is_finished = rendezvous.agree(check, lambda checked: checked[2])
    if is_finished:
        if rendezvous.rank == 0:
            print(f"{flags.output} is finished: nothing to do")
        return 0

    from pipeline.run import start

    try:
        with Watch(rendezvous, flags.output, flags.host_timeout, flags.hang_timeout):
            return start.train_all(flags, tasks, facts)
    except UserError as error:
        return _refuse(error, waits=rendezvous.rank != 0, prints=rendezvous.rank == 0)


def _refuse(error: UserError, waits: bool, prints: bool = True) -> int:
    """Prints a mistake, which all ranks find, as one line and returns the exit status.

    The launcher ends the other ranks once one of them exits, so all wait but the first of the host, or, after the ranks
    have met, but rank 0.
    """
    if waits:
        time.sleep(5.0)
    if prints:
        print(f"error: {error}", file=sys.stderr, flush=True)
    return 2
