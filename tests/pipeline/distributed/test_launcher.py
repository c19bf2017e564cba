"""A rank's launchers: which processes they are, what ends with them, and what torchrun's agent starts again."""

import os
import signal
import subprocess
import sys
import time

import pytest

from common.errors import UserError
from pipeline.distributed import exits, launcher
from pipeline.distributed.launcher import launchers
from pipeline.distributed.rendezvous import find_rank
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.test_pretrain import command, config  # noqa: F401
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


RANK = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
AGENT = {"TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"}


@pytest.fixture
def under_agent(monkeypatch):
    def be_under_agent(**changes):
        for name, value in (RANK | AGENT | changes).items():
            monkeypatch.setenv(name, value)

    return be_under_agent


def test_a_store_of_an_earlier_start_is_refused(under_agent):
    assert launcher.lock_seconds() == 0
    under_agent()
    assert launcher.lock_seconds() > 0, "a start waits for the lock of the start before it"
    find_rank()
    under_agent(TORCHELASTIC_USE_AGENT_STORE="True")
    with pytest.raises(UserError, match="export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on all hosts"):
        find_rank()
    under_agent(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_MAX_RESTARTS="0")
    find_rank()
    under_agent(TORCHELASTIC_MAX_RESTARTS="many")
    with pytest.raises(UserError, match="TORCHELASTIC_MAX_RESTARTS is 'many'"):
        find_rank()


class Ended(Exception):
    """The process would have ended with this status."""


@pytest.mark.parametrize(
    ("ends", "changes", "ended"),
    [
        (2, {}, True),
        (SystemExit(2), {}, True),
        (69, {}, False),
        (SystemExit(1), {}, False),  # a rank that another one's exception ends
        (2, {"LOCAL_RANK": "1"}, False),  # the first rank of the host does it
        (2, {"TORCHELASTIC_RESTART_COUNT": "3"}, False),  # the agent ends by itself
        (2, {"TORCHELASTIC_MAX_RESTARTS": "0"}, False),
    ],
    ids=repr,
)
def test_what_starting_again_does_not_help_ends_the_agent(under_agent, monkeypatch, ends, changes, ended):
    killed = []
    under_agent(**changes)
    monkeypatch.setattr(os, "getppid", lambda: 4321)
    monkeypatch.setattr(launcher, "_is_agent", lambda process: process == 4321)
    monkeypatch.setattr(os, "kill", lambda *words: killed.append(words))

    def leave(status):
        raise Ended(status)

    def main():
        if isinstance(ends, BaseException):
            raise ends
        return ends

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Ended):
        exits.run_and_exit(main)
    assert killed == ([(4321, signal.SIGTERM)] if ended else [])


def test_only_torchrun_is_ended():
    """A process with a name like that; a shell or a notebook is none."""
    for name, is_agent in (("torchrun", True), ("bash", False), ("torch.distributed.run", True), ("train.py", False)):
        words, pipe = [name, "-c", "echo started; read line"], subprocess.PIPE
        with subprocess.Popen(words, executable="/bin/bash", stdin=pipe, stdout=pipe) as process:
            assert process.stdout.readline() == b"started\n"
            assert launcher._is_agent(process.pid) == is_agent, name
    assert not launcher._is_agent(process.pid)  # it has ended


@pytest.mark.slow
def test_plain_torchrun_trains(corpus, config, tmp_path):  # noqa: F811
    words = ["--nproc-per-node", "2", "-m", *command(corpus, config, tmp_path / "run", "--steps", "3")]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "torch.distributed.run", *words]
    ended = subprocess.run(line, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=1500)
    assert ended.returncode == 0, ended.stderr
    assert "16 rows = 4 x 2 accumulated x 2 ranks" in ended.stdout
    assert (tmp_path / "run" / "done").read_text() == "3\n"
