"""A rank ends with the status that its `main` returns."""

import atexit
import os
import signal
import sys

import pytest

from pipeline.distributed.exits import StopSignals, run_and_exit
from tests.pipeline.workers.forked import Forked


def leave(body):
    """A process that would abort in its destructors, as a process group does after its peer has exited."""

    def main():
        print("said")
        if body == "exits":
            sys.exit(2)
        if body == "exits with nothing":
            sys.exit()
        if body == "is interrupted":
            signal.raise_signal(signal.SIGINT)
        if body == "fails":
            raise ValueError("broken")
        return body

    atexit.register(os.abort)
    run_and_exit(main)


@pytest.mark.parametrize(
    ("body", "status", "said_at_the_end"),
    [
        (0, 0, ""),
        (75, 75, ""),
        ("exits", 2, ""),
        ("exits with nothing", 0, ""),
        ("is interrupted", 130, "interrupted"),
        ("fails", 1, "ValueError: broken"),
    ],
)
def test_nothing_that_is_destroyed_at_the_end_changes_the_status(tmp_path, body, status, said_at_the_end):
    process = Forked(tmp_path / "process", leave, body)
    assert (process.status(), process.stdout) == (status, "said\n")
    assert process.stderr.endswith(said_at_the_end + "\n") if said_at_the_end else not process.stderr


@pytest.mark.parametrize("between", [[], [signal.SIGTERM]], ids=["alone", "under a launcher, which adds SIGTERM"])
def test_one_interrupt_is_noted_and_the_second_does_not_wait(between):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    try:
        stop = StopSignals()
        for number in (signal.SIGINT, *between):
            signal.raise_signal(number)
            assert stop.received == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
