"""A rank that cannot say why it ends must end all the same."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.distributed import output
from pipeline.distributed.liveness import ExitNotice, Liveness
from tests.pipeline.workers.forked import Forked


class Met:
    """Stands in for the rendezvous of ranks that have met."""

    rank, world_size, hosts = 0, 2, ("node1", "node2")


def unread():
    """The end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("make", [unread, lambda: os.open("/dev/full", os.O_WRONLY)], ids=["no reader", "full disk"])
def test_what_cannot_be_written_raises_nothing(make):
    descriptor = make()
    try:
        output.write(descriptor, "a line\n")
    finally:
        os.close(descriptor)


KILLED = """
import os, signal, sys
from pipeline.distributed.exits import run_and_exit

def main():
    print("a line of stdout")
    print("a line of stderr", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)

run_and_exit(main)
"""


def test_what_a_launched_rank_has_printed_survives_its_kill(tmp_path):
    """Launchers start ranks with `python -u`, and Python then keeps nothing in a buffer."""
    log = tmp_path / "log"
    with log.open("w") as file:
        command = [sys.executable, "-u", "-c", KILLED]
        root = Path(__file__).resolve().parents[3]
        ended = subprocess.run(command, cwd=root, stdout=file, stderr=subprocess.STDOUT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert log.read_text() == "a line of stdout\na line of stderr\n"


@pytest.mark.parametrize("unbuffered", [True, False])
def test_a_full_pipe_that_does_not_block_loses_lines(tmp_path, unbuffered):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = "from pipeline.distributed.exits import run_and_exit\nrun_and_exit(lambda: print('x' * 200_000) or 75)"
    command = [sys.executable, *(["-u"] if unbuffered else []), "-c", code]
    root = Path(__file__).resolve().parents[3]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        ended = subprocess.run(command, cwd=root, stdout=writer, env=environment, timeout=60, check=False)
    finally:
        os.close(writer)
        os.close(reader)
    assert ended.returncode == 75


def end_unread():
    os.dup2(unread(), 2)
    os.environ["LOCAL_RANK"] = "0"
    Liveness(Met(), 3.0)._end(ExitNotice(69, "lost rank 1", 0.0))


def test_a_lost_rank_ends_the_others_also_if_nobody_reads_their_output(tmp_path):
    assert Forked(tmp_path / "process", end_unread).status() == 69
