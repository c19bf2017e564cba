"""Keeps Python's garbage collector away from what a command imports: about a million objects, none of them garbage.

While a command imports torch and DeepSpeed, the collector would look at them again and again. When Python ends, it
would look at them once more. Together this is a fifth of the processor time of a short command. During training, each
full collection would stop a rank to look at them.

This concerns only a process that `python -m` started: a program that imports the packages keeps its own ways.
"""

import atexit
import contextlib
import gc
from collections.abc import Iterator

from common.interrupts import in_own_command

_in_command = False


def wait_for_work() -> None:
    """Stops the collector until `begin_work`. The packages of commands call it while Python imports them."""
    global _in_command
    if in_own_command() and not _in_command:
        _in_command = True
        gc.disable()
        atexit.register(gc.freeze)


def begin_work() -> None:
    """Starts the collector, if it was stopped. It never looks at what there is now."""
    if _in_command and not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Stops the collector in a `with` block that imports large packages."""
    if _in_command:
        gc.disable()
    try:
        yield
    finally:
        begin_work()
