"""mypy finds no mistake. It is a test so that it takes one of the processes of `make test` and not all of its time."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_types() -> None:
    cache = Path(sys.prefix) / "mypy_cache"  # as in the Makefile
    words = [sys.executable, "-m", "mypy", "--cache-dir", str(cache)]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
