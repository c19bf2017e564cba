"""Ctrl-C in the first seconds of a command, while it imports, and later."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import sys; sys.argv[0], sys.orig_argv = '-m', ['python', '-m', 'data_prep']
import signal, data_prep; sys.argv[0] = 'x'
from common.command_line import Parser
"""
END = """
try: signal.raise_signal(signal.SIGINT)
finally: print('cleaned up', flush=True)
"""


@pytest.mark.parametrize(
    ("works", "stdout", "stderr"), [(False, "", ""), (True, "cleaned up\n", "interrupted\n")], ids=["imports", "works"]
)
def test_an_interrupt_prints_no_traceback_and_what_works_is_cleaned_up(works: bool, stdout: str, stderr: str) -> None:
    code = BEGIN + ("Parser(prog='x').parse_all([])" if works else "") + END
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (done.stdout, done.stderr, done.returncode) == (stdout, stderr, -signal.SIGINT)
