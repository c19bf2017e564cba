"""A rank's exit status is the one it meant."""

import subprocess
import sys

import pytest

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
