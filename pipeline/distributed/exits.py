"""How a rank ends: stop signals, exit statuses, and the end of its process."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from common import interrupts
from pipeline.distributed import elastic, output, signal_answers

EXIT_FAILED = 1
EXIT_MISTAKE = 2  # of the user
EXIT_LOST = 69  # EX_UNAVAILABLE of sysexits.h: a rank is lost, never came, or holds wrong weights
EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: stopped by a signal after saving; try again


class StopSignals:
    """Records SIGTERM, SIGINT and SIGUSR1 (Slurm's warning), so that training can finish the step and save.

    Creating one installs the handlers, and `pipeline.distributed.signal_answers`. A second SIGINT raises
    KeyboardInterrupt: a person who presses Ctrl-C twice does not want to wait.

    Args:
        saves: whether the process saves before it ends; the answer says so.
    """

    NUMBERS = signal_answers.STOP_SIGNALS

    def __init__(self, saves: bool = True) -> None:
        self.received: int | None = None
        self._interrupted = False  # not `received`: after one Ctrl-C the launcher sends SIGTERM as well
        for number in self.NUMBERS:
            signal.signal(number, self._record)
        signal_answers.of_this_process().install(saves)

    def flags(self) -> list[float]:
        """For each of `NUMBERS`, 1 if that signal was the last one received, else 0. Summed over ranks."""
        return [float(number == self.received) for number in self.NUMBERS]

    def first(self, flags: Sequence[float]) -> int | None:
        """The first signal that some rank has received, by the sum of all ranks' `flags`; None if there is none."""
        return next((int(number) for number, count in zip(self.NUMBERS, flags) if count), None)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                signal_answers.of_this_process().main_thread_quits()
                raise KeyboardInterrupt
            self._interrupted = True
        self.received = number


def say_stopped(signal_number: int, step: int) -> None:
    """Prints which signal stopped the run and how to continue it."""
    output.keep_open()
    name = signal.Signals(signal_number).name
    print(f"stopped by {name} and saved at step {step}; the same command continues from there", flush=True)


def run_and_exit(main: Callable[[], int]) -> NoReturn:
    """Runs a rank's `main` and ends the process with its status, without waiting for other threads.

    The threads and sockets of process groups outlive the interpreter's normal end. If a peer has exited a moment
    earlier, their destructors may abort the process, and a scheduler would see status -6 instead of 2 or 75. Nothing
    needs destruction: `main` closes the files that it writes.

    Training that has failed (status 1, returned) and a mistake (status 2) end torchrun's agent as well. After a lost
    rank, a stop or an exception, the agent starts the ranks again.
    """
    output.survive_full_disk()
    is_final = False
    try:
        status = main()
        is_final = status in (EXIT_FAILED, EXIT_MISTAKE)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        is_final = status == EXIT_MISTAKE
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":
            sys.stderr.write(interrupts.MESSAGE)
        status = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # what reads the output (head, less) has closed it, or the disk is full
            stream.flush()
    if is_final:
        elastic.end_agent()
    os._exit(status)
