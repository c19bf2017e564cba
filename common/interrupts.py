"""Ctrl-C at a command: while it imports, while it works, and while Python ends."""

import atexit
import itertools
import os
import re
import signal
import sys
from types import FrameType, TracebackType

MESSAGE = "interrupted\n"
"""What is printed for Ctrl-C if no work had begun, or if nothing catches the KeyboardInterrupt."""


def in_own_command() -> bool:
    """Whether Python imports a package of this project because it runs a command of it: `python -m pipeline.plan`."""
    following = itertools.pairwise(sys.orig_argv)
    module = next((word for option, word in following if re.fullmatch("-[a-zA-Z]*m", option)), "")
    return sys.argv[:1] == ["-m"] and module.partition(".")[0] in ("data_prep", "pipeline")


def end_quietly() -> None:
    """Makes Ctrl-C end the process with one line instead of a traceback. The process still ends by SIGINT.

    Until `begin_work`, and again while Python ends, a signal handler ends the process. A KeyboardInterrupt would not
    do: during an import it may be raised inside a destructor or a module's `except`, which prints it or drops it. In
    between, a KeyboardInterrupt is raised as usual, so that work can be cleaned up.

    This concerns only a process that `python -m` started: a program that imports the packages keeps its own ways.
    """
    if not in_own_command():
        return
    sys.excepthook = _report
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in a background job of a shell
        signal.signal(signal.SIGINT, _end)
        atexit.register(signal.signal, signal.SIGINT, _end)


def begin_work() -> None:
    """From here on, Ctrl-C raises KeyboardInterrupt. It does nothing in a process that `end_quietly` left alone."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the process by the signal, after the message. A Python stream might be in the middle of a write."""
    os.write(2, MESSAGE.encode())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints `MESSAGE` for a KeyboardInterrupt, and any other error as Python does."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write(MESSAGE)
    else:
        sys.__excepthook__(kind, error, trace)
