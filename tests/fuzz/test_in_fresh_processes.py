"""Runs the tests that fork their own process in processes of their own.

A fork of a process in which SentencePiece or torch has started threads may crash, and other tests start them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["tests/fuzz/every_command.py", "tests/pipeline/simultaneous_starts.py"])
def test_in_a_fresh_process(module: str) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", module]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
