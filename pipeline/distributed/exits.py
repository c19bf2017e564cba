"""How a rank ends: stop signals and what answers them, exit statuses, and the end of its process."""

import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from common import environment
from common.errors import UserError, one_line
from pipeline.distributed.launcher import end_agent, keep_output_open, write_now
from pipeline.distributed.progress import Progress, get_progress

EXIT_FAILED = 1
EXIT_MISTAKE = 2  # of the user
EXIT_LOST = 69  # EX_UNAVAILABLE of sysexits.h: a rank is lost, never came, or holds wrong weights
EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: stopped by a signal after saving; try again
_OTHERS_SECONDS = 2.0  # for the other ranks to find the same mistake by themselves


class ExitNotice(NamedTuple):
    """Why a rank leaves (0: it is done), and how the others end."""

    status: int
    line: str = ""  # the error message that is printed once a host
    grace: float = 0.0  # seconds that the ranks have to end by themselves
    stacks: str = ""  # directory to which each rank writes its stacks; "" for none


def exit_notice(name: str, error: BaseException | None) -> ExitNotice:
    """The notice of a rank that leaves, by the exception that makes it leave."""
    if error is None:
        return ExitNotice(0)
    if isinstance(error, UserError):
        return ExitNotice(EXIT_MISTAKE, f"{name}: {error}", _OTHERS_SECONDS)
    if isinstance(error, KeyboardInterrupt):
        return ExitNotice(128 + signal.SIGINT, f"{name} was interrupted")
    return ExitNotice(EXIT_FAILED, f"{name} failed: {type(error).__name__}: {one_line(error)}")


class StopSignals:
    """Records SIGTERM, SIGINT and SIGUSR1 (Slurm's warning), so that training can finish the step and save.

    Python calls a handler only between two instructions of the main thread, which may compute in compiled code for
    long. But it writes the number of each signal to a descriptor immediately. A thread reads it, and prints what
    happens next. A second SIGINT ends the process at once, and what is being saved stays incomplete.
    """

    # Ctrl-C comes first: the launcher answers it with a SIGTERM to every rank.
    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

    def __init__(self) -> None:
        self.received: int | None = None
        for number in self.NUMBERS:
            signal.signal(number, self._record)
        self._reader, self._writer = socket.socketpair()  # never closed: the C handler writes to it
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._answer_signals, name="signals", daemon=True).start()

    def flags(self) -> list[float]:
        """For each of `NUMBERS`, 1 if that signal was the first one received, else 0. Summed over ranks."""
        return [float(number == self.received) for number in self.NUMBERS]

    def first(self, flags: Sequence[float]) -> int | None:
        """The first signal that some rank has received, by the sum of all ranks' `flags`; None if there is none."""
        return next((int(number) for number, count in zip(self.NUMBERS, flags) if count), None)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number

    def _answer_signals(self) -> None:
        received: list[int] = []
        while numbers := self._reader.recv(64):
            for number in filter(self.NUMBERS.__contains__, numbers):
                received.append(number)
                if received.count(signal.SIGINT) > 1:  # after one, the launcher sends SIGTERM as well
                    write_now(2, environment.INTERRUPTED if os.environ.get("RANK", "0") == "0" else "")
                    os._exit(128 + signal.SIGINT)
                if len(received) == 1:
                    self._print_answer(number)

    def _print_answer(self, number: int) -> None:
        if os.environ.get("RANK", "0") == "0":
            again = "; again to quit now" if number == signal.SIGINT else ""
            keep_output_open()  # Ctrl-C has ended what reads it, such as tee
            # The line break ends the line of a bar.
            write_now(1, f"\n{describe_end(get_progress())}{again}\n")


def describe_end(own: Progress) -> str:
    """What a process does after a stop signal, by its progress."""
    if not own.step:
        return "ending before the first step"
    if own.phase == "end":
        return "training has ended; please wait"
    what = f"the evaluation of step {own.step}" if own.phase in ("evaluation", "scoring") else "the step"
    return f"finishing {what}, then saving"


def say_stopped(signal_number: int, step: int) -> None:
    """Prints which signal stopped the run and how to continue it."""
    keep_output_open()
    name = "Ctrl-C" if signal_number == signal.SIGINT else signal.Signals(signal_number).name
    print(f"stopped by {name} and saved at step {step}; the same command continues from there", flush=True)


def run_and_exit(main: Callable[[], int]) -> NoReturn:
    """Runs a rank's `main` and ends the process with its status, without waiting for other threads.

    The destructors of process groups may abort the process if a peer has exited a moment earlier; a scheduler would see
    status -6. Training that has failed (status 1, returned) and a mistake (status 2) end torchrun's agent as well.
    After a lost rank, a stop or an exception, the agent starts the ranks again.
    """
    is_final = False
    try:
        status = main()
        is_final = status in (EXIT_FAILED, EXIT_MISTAKE)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        is_final = status == EXIT_MISTAKE
    except KeyboardInterrupt:  # before training
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more would end the process with a traceback
        if os.environ.get("RANK", "0") == "0":
            sys.stderr.write(environment.INTERRUPTED)
        status = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # what reads the output (head, less) has closed it, or the disk is full
            stream.flush()
    if is_final:
        end_agent()
    os._exit(status)
