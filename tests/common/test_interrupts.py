"""Ctrl-C in the first seconds of a command, while it imports."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PIPE_BYTES = 4096
"""Size of the pipe that carries the process's messages: the smallest. The process waits when it is full."""


def interrupted_at(line_part: str, module: str) -> tuple[int, str]:
    """Runs `python -v -m module --help`, sends SIGINT near the message with `line_part`, and returns status and stderr.

    With -v, Python reports every import, and every module at its end, to a pipe which this test stops reading at the
    message. The process can be at most `PIPE_BYTES` further when the signal comes: a few dozen messages.
    """
    process = subprocess.Popen(
        [sys.executable, "-v", "-m", module, "--help"],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stderr is not None
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    seen = b""
    while line_part.encode() not in seen:
        part = os.read(process.stderr.fileno(), 256)
        assert part, f"{line_part!r} was never printed"
        seen += part
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=300)
    return process.returncode, (seen + rest).decode()


@pytest.mark.parametrize(
    ("module", "line_part"),
    [
        ("pipeline.pretrain", "import 'pipeline.settings.pretrain'"),
        ("data_prep", "import 'common.command_line'"),
    ],
)
def test_an_interrupt_while_importing_prints_no_traceback(module: str, line_part: str) -> None:
    status, messages = interrupted_at(line_part, module)
    assert "Traceback" not in messages
    assert status == -signal.SIGINT


def test_a_command_that_works_is_interrupted_by_an_exception() -> None:
    """`begin_work` gives KeyboardInterrupt back: what a command has open is cleaned up."""
    code = (
        "import sys; sys.argv[0], sys.orig_argv = '-m', ['python', '-m', 'data_prep']\n"
        "import signal, data_prep; sys.argv[0] = 'x'\n"
        "from common.command_line import Parser\n"
        "Parser(prog='x').parse_all([])\n"
        "try: signal.raise_signal(signal.SIGINT)\n"
        "finally: print('cleaned up', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (done.stdout, done.stderr, done.returncode) == ("cleaned up\n", "interrupted\n", -signal.SIGINT)
