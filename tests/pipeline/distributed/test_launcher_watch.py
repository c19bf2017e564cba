"""Which processes are a rank's launchers, and what happens when one of them ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.distributed.launcher_watch import Process, is_orphan, launchers
from pipeline.distributed.terminal import is_own_job
from tests.pipeline.workers.forked import Forked

AGENT = Process(50, 40, "python", ["/venv/bin/python", "-u", "-m", "deepspeed.launcher.launch", "--world_info=x"], 40)
LOCAL_AGENT = AGENT._replace(words=[*AGENT.words, "--enable_each_rank_log=None"])
DEEPSPEED = Process(
    40, 30, "deepspeed", ["/venv/bin/python", "/venv/bin/deepspeed", "--module", "pipeline.pretrain"], 40
)
SHELL = Process(30, 20, "bash", ["-bash"], 30)
SSHD = Process(20, 1, "sshd", ["sshd: user@notty"], 20)
INIT = Process(1, 0, "init", ["/sbin/init"], 1)
TORCHRUN = Process(60, 30, "torchrun", ["/venv/bin/python", "/venv/bin/torchrun", "-m", "pipeline.pretrain"], 60)


@pytest.mark.parametrize(
    ("ancestors", "expected"),
    [
        ([AGENT, DEEPSPEED, SHELL, SSHD], [AGENT, DEEPSPEED]),  # the shell of the person may end (nohup)
        ([AGENT, SHELL, SSHD], [AGENT, SSHD]),  # a host of a hostfile, through pdsh and ssh
        ([AGENT, SSHD], [AGENT, SSHD]),  # where the shell has replaced itself by the agent
        ([AGENT, SHELL], [AGENT]),
        ([TORCHRUN, SHELL, SSHD], [TORCHRUN]),
        ([AGENT], [AGENT]),  # the `deepspeed` command has ended already
        ([], []),
    ],
)
def test_the_launchers_of_a_rank(ancestors, expected):
    assert launchers(ancestors) == expected


@pytest.mark.parametrize(
    ("agent", "parent", "expected"),
    [
        (LOCAL_AGENT, DEEPSPEED, False),
        (LOCAL_AGENT, None, True),
        (LOCAL_AGENT, INIT, True),
        (LOCAL_AGENT, INIT._replace(name="bash", group=LOCAL_AGENT.group), True),  # `bash script` in a container
        (LOCAL_AGENT, DEEPSPEED._replace(name="python", words=["python", "own.py"]), False),  # calls DeepSpeed's runner
        (AGENT, INIT, False),  # a service that a person has written
        (TORCHRUN, INIT, False),
    ],
)
def test_an_agent_whose_deepspeed_command_has_ended_is_an_orphan(agent, parent, expected):
    assert is_orphan(agent, parent) == expected


def test_only_a_job_of_its_own_is_taken_to_the_foreground():
    assert is_own_job([AGENT, DEEPSPEED], DEEPSPEED.pid)
    assert not is_own_job([AGENT, DEEPSPEED], SHELL.pid)  # the group of a script that started `deepspeed`
    assert not is_own_job([TORCHRUN], TORCHRUN.pid)


def start_a_rank(output):
    """A launcher whose rank writes into a pipe that nobody reads any more, then into `output`."""
    if os.fork() == 0:
        import signal

        from pipeline.distributed import launcher_watch

        reader, writer = os.pipe()
        os.dup2(writer, 1)
        for descriptor in (reader, writer):
            os.close(descriptor)
        os.environ["LOCAL_RANK"] = "0"
        signal.signal(signal.SIGTERM, lambda *arguments: output.write_text("stopped"))
        launcher_watch.watch()
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
    assert Forked(tmp_path / "launcher", start_a_rank, tmp_path / "said").status() == 0
    deadline = time.monotonic() + 300
    while not (tmp_path / "wrote").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / "said").read_text() == "stopped"


RANK = "from pipeline.distributed import launcher_watch as l; import time; l.watch(); time.sleep({seconds})"
LATE_AGENT = """
import os, subprocess, sys, time
if sys.argv[1] == "orphan":
    while os.getppid() == int(sys.argv[2]):
        time.sleep(0.01)
rank = subprocess.run([sys.executable, "-c", sys.argv[3]], capture_output=True, text=True)
with open(sys.argv[4] + ".new", "w") as file:
    file.write(f"{rank.returncode} {rank.stdout}{rank.stderr}")
os.rename(sys.argv[4] + ".new", sys.argv[4])
"""
RUNNER = """
import os, subprocess, sys
agent = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], str(os.getpid()), *sys.argv[3:]])
if sys.argv[2] != "orphan":
    agent.wait()
"""


@pytest.mark.parametrize("case", ["orphan", "child"])
def test_a_rank_that_starts_after_the_end_of_the_deepspeed_command_ends_at_once(tmp_path, case):
    """The command was killed while its agent was still importing torch."""
    said = tmp_path / "said"
    rank = RANK.format(seconds=600 if case == "orphan" else 0.5)
    subprocess.run(
        [sys.executable, "-c", RUNNER, LATE_AGENT, case, rank, said, "--enable_each_rank_log=None"],
        cwd=Path(__file__).parents[3], env={**os.environ, "LOCAL_RANK": "0"}, start_new_session=True, check=True,
    )  # fmt: skip
    deadline = time.monotonic() + 100
    while not said.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    expected = f"{-signal.SIGTERM} the launcher (deepspeed) has ended, so this run stops\n"
    assert said.read_text() == (expected if case == "orphan" else "0 ")
