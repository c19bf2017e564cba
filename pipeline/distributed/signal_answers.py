"""Answers a stop signal at once, also while the main thread computes, waits or evaluates in compiled code.

Python calls a signal handler only between two instructions of the main thread. But it writes the number of each signal
to a descriptor immediately. A thread reads it, prints what happens next, and ends a process that does not react to a
second Ctrl-C.
"""

import os
import signal
import socket
import threading
from functools import cache

from pipeline.distributed import output
from pipeline.distributed.hangs import progress
from pipeline.distributed.hangs.progress import Progress

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_QUIT_SECONDS = 3.0  # for the main thread to notice the second Ctrl-C by itself


class SignalAnswers:
    """The answering thread of this process. Use `of_this_process`."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()  # never closed: the C handler writes to it
        self._writer.setblocking(False)
        self._begin()
        self._saves = True
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def install(self, saves: bool) -> None:
        """Answers every later signal; the next one is the first. Called in the main thread.

        Args:
            saves: whether the process saves before it ends.
        """
        self._begin()
        self._saves = saves
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def main_thread_quits(self) -> None:
        """Says that the main thread has noticed the second Ctrl-C."""
        self._quits.set()

    def _begin(self) -> None:
        self._answered, self._interrupts, self._quits = False, 0, threading.Event()

    def _listen(self) -> None:
        while numbers := self._reader.recv(64):
            for number in numbers:
                if number in STOP_SIGNALS:
                    self._answer(number)

    def _answer(self, number: int) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            if not self._quits.wait(_QUIT_SECONDS):
                os._exit(128 + signal.SIGINT)
        elif not self._answered and os.environ.get("RANK", "0") == "0":
            again = "; again to quit now" if number == signal.SIGINT else ""
            output.keep_open()  # Ctrl-C has ended what reads it, such as tee
            # The line break ends the line of a bar.
            output.write(1, f"\n{what_follows(progress.of_this_process(), self._saves)}{again}\n")
        self._answered = True


@cache
def of_this_process() -> SignalAnswers:
    """The answering thread of this process; it is started by the first call."""
    return SignalAnswers()


def what_follows(own: Progress, saves: bool) -> str:
    """What a process does after a stop signal, by its progress and whether it saves."""
    if not own.step:
        return "ending before the first step"
    if own.phase in ("evaluation", "scoring"):
        return f"leaving the evaluation of step {own.step}, then saving"
    if own.phase == "save":
        return f"saving step {own.step}, then ending"
    if own.phase == "end":
        return "training has ended; finishing what follows it"
    if not saves:
        return f"finishing step {own.step}, then ending"
    return f"finishing step {own.step}, then saving"
