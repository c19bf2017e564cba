"""The course of a training command on all of its ranks: found, agreed, watched, ended with one status.

    find_rank -> Meeting.agree(prepare) -> Liveness(work) -> exit status

`pipeline.pretrain` and `pipeline.finetune` are a `prepare`, which checks the command line, and a `work`.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from data_prep.batch import launched_size
from data_prep.errors import UserError
from pipeline import runs
from pipeline.liveness import Liveness
from pipeline.rendezvous import Meeting

if TYPE_CHECKING:
    from pipeline.trainer import Trainer


class Checked(Protocol):
    """A command line that has been checked.

    Attributes:
        finished: what to say where nothing is left to do; "" where something is.
        host_timeout: seconds after which a host that does not answer is lost.
    """

    @property
    def finished(self) -> str: ...
    @property
    def host_timeout(self) -> float: ...


C = TypeVar("C", bound=Checked)


def run(prepare: Callable[[int], C], facts: Callable[[C], Mapping[str, str]], work: Callable[[C], int]) -> int:
    """Runs a command on this rank, as all others do, and returns the exit status.

    Args:
        prepare: checks the command for so many ranks and writes nothing; raises UserError for what cannot work.
        facts: by name, what the ranks must agree on, though each reads files of its own host.
        work: does what is left to do and returns the exit status; may raise UserError.
    """
    find_rank()
    meeting = Meeting()
    checked = meeting.agree(lambda: prepare(meeting.world_size), facts)
    if checked.finished:
        if meeting.rank == 0:
            print(checked.finished)
        meeting.leave()
        return 0
    try:
        with Liveness(meeting, checked.host_timeout):
            return work(checked)
    except UserError as error:
        report_user_error(error, meeting.rank)


def train(trainer: "Trainer") -> int:
    """Trains to the end of the run and closes its monitor. Collective.

    Returns:
        0; 1 where training failed; 75 where a signal ended it early. Rank 0 has said why.
    """
    from pipeline.health import TrainingFailed

    control = trainer.control
    status = 0
    try:
        stopped_by = trainer.train()
        if stopped_by is not None:
            status = runs.EXIT_STOPPED
            if control.rank == 0:
                runs.say_stopped(stopped_by, trainer.position.step)
    except TrainingFailed as error:  # on all ranks together
        status = 1
        if control.rank == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
    finally:
        trainer.monitor.close()
    if status:
        control.barrier()  # the first that leaves has the launcher end the others
    return status


def find_rank() -> None:
    """Sets RANK, WORLD_SIZE and the like where DeepSpeed's launcher has not: from MPI, else for a single rank.

    `deepspeed --launcher openmpi` leaves it to the ranks to find each other, on port 29500 of rank 0's host.
    """
    if "RANK" not in os.environ and launched_size() > 1:
        from deepspeed.comm import mpi_discovery

        mpi_discovery(verbose=False)
    else:
        become_single_rank()


def become_single_rank() -> None:
    """Without a launcher this process is the only rank: `python -m pipeline.pretrain` works, too."""
    if "RANK" in os.environ:
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def report_user_error(error: UserError, rank: int) -> NoReturn:
    """Prints the one line on rank 0 and exits with status 2.

    Every rank finds the same mistake. The launcher kills the others as soon as one has left, so the others leave
    later than rank 0, which has something to say.
    """
    if rank == 0:
        print(f"error: {error}", file=sys.stderr, flush=True)
    else:
        time.sleep(5.0)
    sys.exit(2)
