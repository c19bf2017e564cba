"""Runs the tests that fork their own process in a process of their own.

A fork of a process in which SentencePiece or torch has started threads may crash, and other tests start them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]


def test_in_a_fresh_process() -> None:
    modules = ("tests/fuzz/every_command.py", "tests/fuzz/simultaneous_starts.py")  # in this order: the first warms up
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *modules]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
