"""A rank's exit status is the one it meant."""

import signal
import subprocess
import sys

import pytest

from pipeline.control import StopSignals

LEAVES = """
import atexit, os, signal, sys
from pipeline.control import run_and_leave
atexit.register(os.abort)  # as the destructor of a process group whose peer has gone

def main():
    print("said")
    {body}

run_and_leave(main)
"""


@pytest.mark.parametrize(
    ("body", "status", "said_at_the_end"),
    [
        ("return 0", 0, ""),
        ("return 75", 75, ""),
        ("sys.exit(2)", 2, ""),
        ("sys.exit()", 0, ""),
        ("signal.raise_signal(signal.SIGINT)", 130, ""),
        ("raise ValueError('broken')", 1, "ValueError: broken"),
    ],
)
def test_nothing_that_is_destroyed_at_the_end_changes_the_status(body, status, said_at_the_end):
    result = subprocess.run(
        [sys.executable, "-c", LEAVES.format(body=body)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout) == (status, "said\n")
    assert result.stderr.endswith(said_at_the_end + "\n") if said_at_the_end else not result.stderr


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
