"""A watcher whose judge is lost while its rank is stopped."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from pipeline.distributed.connections import send
from pipeline.distributed.hangs import progress, stacks, watcher

LINE = "error: lost rank 0 on host a while it judged which ranks hang; "


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[bytes]]:
    """The rank's end of the pipe to its watcher."""
    end, ours = os.pipe()
    with open(end, "rb") as own, open(ours, "wb") as other:
        monkeypatch.setattr(sys, "stdin", own)
        yield other


def watcher_of(rank: subprocess.Popen[bytes], peer: socket.socket, number: int, folder: Path) -> watcher.Watcher:
    memory = progress.of_this_process().descriptor
    hosts = ["a", "b", "b"]
    return watcher.Watcher(
        watcher.Task(number, rank.pid, memory, memory, peer.detach(), None, "token", hosts, str(folder), tick=0.05)
    )


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("lost", ["its process has ended", "its host is silent"])
def test_a_stopped_rank_does_not_wait_for_a_lost_judge(
    rank: subprocess.Popen[bytes],
    stdin: IO[bytes],
    lost: str,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(stacks, "collect", lambda *arguments: "stacks")
    monkeypatch.setattr(watcher, "_KILL_SECONDS", 0.1)
    if lost == "its host is silent":
        monkeypatch.setattr(watcher, "_VERDICT_SECONDS", 0.2)
    judge, peer = socket.socketpair()
    watching = watcher_of(rank, peer, number, tmp_path)
    send(judge, {"kind": "collect"})
    if lost == "its process has ended":
        judge.shutdown(socket.SHUT_WR)
    with judge, pytest.raises(SystemExit):
        watching.run()
    assert rank.wait(60) == -signal.SIGKILL
    shown = capfd.readouterr()
    assert shown.out.strip() == watcher.END
    assert shown.err.startswith(LINE) if number == 1 else shown.err == ""


def test_a_rank_that_is_not_stopped_goes_on_without_a_judge(
    rank: subprocess.Popen[bytes], stdin: IO[bytes], tmp_path: Path
) -> None:
    judge, peer = socket.socketpair()
    watching = watcher_of(rank, peer, 1, tmp_path)
    judge.close()
    stdin.write(b"left\n")
    stdin.close()
    watching.run()
    assert rank.poll() is None
