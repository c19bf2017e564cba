"""Which processes are a rank's launchers, and what happens when one of them ends."""

import os
import time

import pytest

from pipeline.distributed.launcher import launchers
from tests.pipeline.workers.forked import Forked


class Process:
    """A process as psutil gives it."""

    def __init__(self, name, words):
        self.name, self.cmdline = lambda: name, lambda: words


AGENT = Process("python", ["/venv/bin/python", "-u", "-m", "deepspeed.launcher.launch", "--world_info=x"])
DEEPSPEED = Process("deepspeed", ["/venv/bin/python", "/venv/bin/deepspeed", "--module", "pipeline.pretrain"])
SHELL = Process("bash", ["-bash"])
SSHD = Process("sshd", ["sshd: user@notty"])
TORCHRUN = Process("torchrun", ["/venv/bin/python", "/venv/bin/torchrun", "-m", "pipeline.pretrain"])


@pytest.mark.parametrize(
    ("ancestors", "expected"),
    [
        ([AGENT, DEEPSPEED, SHELL, SSHD], [AGENT, DEEPSPEED]),  # the shell of the person may end (nohup)
        ([AGENT, SHELL, SSHD], [AGENT, SSHD]),  # a host of a hostfile, through pdsh and ssh
        ([AGENT, SSHD], [AGENT, SSHD]),  # where the shell has replaced itself by the agent
        ([TORCHRUN, SHELL, SSHD], [TORCHRUN]),
        ([AGENT], [AGENT]),  # the `deepspeed` command has ended already
    ],
)
def test_the_launchers_of_a_rank(ancestors, expected):
    assert launchers(ancestors) == expected


def start_a_rank(output):
    """A launcher whose rank writes into a pipe that nobody reads any more, then into `output`."""
    if os.fork() == 0:
        import signal

        from pipeline.distributed import launcher

        reader, writer = os.pipe()
        os.dup2(writer, 1)
        for descriptor in (reader, writer):
            os.close(descriptor)
        os.environ["LOCAL_RANK"] = "0"
        signal.signal(signal.SIGTERM, lambda *arguments: output.write_text("stopped"))
        launcher.watch()
        (output.parent / "watched").touch()
        while not output.exists():
            time.sleep(0.01)
            os.write(2, b"")
        os.write(1, b"to nowhere")  # does not raise
        (output.parent / "wrote").touch()
        os._exit(0)
    while not (output.parent / "watched").exists():
        time.sleep(0.01)
    os._exit(0)


def test_a_rank_stops_when_its_launcher_ends_and_can_still_print(tmp_path):
    assert Forked(tmp_path / "launcher", start_a_rank, tmp_path / "said").wait() == 0
    deadline = time.monotonic() + 1500
    while not (tmp_path / "wrote").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / "said").read_text() == "stopped"
