"""Runs one command on all ranks: rendezvous, validate, monitor, exit.

    find_rank -> Rendezvous.agree(prepare) -> Liveness(work) -> exit status

A command such as `pipeline.pretrain` consists of `prepare`, which checks the command line, and `run`, which works.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from common import garbage
from common.environment import whole_number
from common.errors import UserError
from pipeline.distributed import descriptors, launcher_watch
from pipeline.distributed.hangs.watch import Watch
from pipeline.distributed.liveness import Liveness
from pipeline.distributed.rendezvous import Rendezvous
from pipeline.distributed.terminal import Foreground
from pipeline.engine.machine import shared_memory
from pipeline.engine.machine.rank_discovery import find_rank


class Checked(Protocol):
    """A command line that has been checked.

    Attributes:
        finished: message if nothing is left to do; "" if something is.
        host_timeout: seconds without an answer after which a host counts as lost.
        hang_timeout: seconds without progress after which a rank counts as hanging, at least; 0 for never.
        output: the directory of the run.
    """

    @property
    def finished(self) -> str: ...
    @property
    def host_timeout(self) -> float: ...
    @property
    def hang_timeout(self) -> float: ...
    @property
    def output(self) -> Path: ...

    def facts(self) -> Mapping[str, str]:
        """What all ranks must agree on, by name. Each rank reads the files of its own host, which may differ."""
        ...


A = TypeVar("A", contravariant=True)
C = TypeVar("C", bound=Checked)


class Command(Protocol[A, C]):
    """The module of a command."""

    def prepare(self, args: A, world_size: int, /) -> C:
        """Checks the parsed command line for a number of ranks. It writes nothing; a mistake is a UserError."""
        ...

    def run(self, prepared: C, /) -> int:
        """Does the work and returns the exit status. A mistake is a UserError."""
        ...


def start(argv: Sequence[str] | None, parse: Callable[[Sequence[str]], A], load: Callable[[], Command[A, C]]) -> int:
    """Runs a command line on this rank and returns the exit status. Every rank of the job must call it.

    Args:
        argv: words of the command line; None for those of this process.
        parse: reads them.
        load: imports the command's module and with it DeepSpeed. A mistake that `parse` finds shows without waiting
            for that.
    """
    words = sys.argv[1:] if argv is None else argv

    def prepare(world_size: int) -> C:
        args = parse(words)
        with garbage.importing():
            command = load()
        return command.prepare(args, world_size)

    return run(prepare, lambda prepared: load().run(prepared))


def run(prepare: Callable[[int], C], work: Callable[[C], int]) -> int:
    """Runs a command on this rank. Every rank of the job must call it.

    Args:
        prepare: checks the command for a number of ranks. It writes nothing and raises UserError for a mistake.
        work: does the work and returns the exit status. It may raise UserError.
    Returns:
        The exit status.
    """
    try:
        if "RANK" in os.environ:  # a launcher started this process
            launcher_watch.watch()
        find_rank()
        world_size = int(os.environ["WORLD_SIZE"])
        descriptors.raise_limit(world_size)
        rendezvous = Rendezvous()
    except UserError as error:
        return _refuse_alone(error)

    def check() -> C:
        if rendezvous.rank == 0:
            descriptors.check_limit(world_size)
        prepared = prepare(world_size)
        if whole_number("LOCAL_RANK") == 0:
            shared_memory.check_room()
        return prepared

    checked = rendezvous.agree(check, lambda found: found.facts())
    if checked.finished:
        if rendezvous.rank == 0:
            print(checked.finished)
        rendezvous.leave()
        return 0
    try:
        with (
            Liveness(rendezvous, checked.host_timeout) as liveness,
            Watch(rendezvous, checked.hang_timeout, checked.output, liveness),
            Foreground(is_watched=checked.hang_timeout > 0),
        ):
            return work(checked)
    except UserError as error:
        report_user_error(error, rendezvous.rank)


def _refuse_alone(error: UserError) -> int:
    """Prints a mistake that this rank found before it met the others, and returns the exit status.

    The other ranks of the host find the same one. A launcher ends them once one has exited, so that it is one line.
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
