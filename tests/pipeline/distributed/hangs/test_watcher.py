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


def watcher_of(
    rank: subprocess.Popen[bytes], peer: socket.socket, number: int, hosts: list[str], folder: Path
) -> watcher.Watcher:
    memory = progress.of_this_process().descriptor
    return watcher.Watcher(
        watcher.Task(number, rank.pid, memory, memory, peer.detach(), None, "token", hosts, str(folder), tick=0.05)
    )


@pytest.mark.parametrize(
    ("hosts", "number", "speaks"), [("abb", 1, True), ("abb", 2, False), ("aaa", 1, True), ("aab", 2, True)]
)
@pytest.mark.parametrize("lost", ["its process has ended", "its host is silent", "its host takes nothing"])
def test_a_stopped_rank_does_not_wait_for_a_lost_judge(
    rank: subprocess.Popen[bytes],
    stdin: IO[bytes],
    lost: str,
    hosts: str,
    number: int,
    speaks: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    text = "stacks" if lost != "its host takes nothing" else "stacks" * 10**6
    monkeypatch.setattr(stacks, "collect", lambda *arguments: text)
    monkeypatch.setattr(watcher, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(watcher, "_KILL_SECONDS", 0.1)
    if lost == "its host is silent":
        monkeypatch.setattr(watcher, "_VERDICT_SECONDS", 0.2)
    judge, peer = socket.socketpair()
    watching = watcher_of(rank, peer, number, list(hosts), tmp_path)
    send(judge, {"kind": "collect"})
    if lost == "its process has ended":
        judge.shutdown(socket.SHUT_WR)
    with judge, pytest.raises(SystemExit):
        watching.run()
    assert (watching._verdict_in <= 0) == (lost == "its host is silent")
    assert rank.wait(60) == -signal.SIGKILL
    shown = capfd.readouterr()
    assert shown.out.strip() == watcher.END
    assert shown.err.startswith(LINE) if speaks else shown.err == ""


def test_a_rank_that_is_not_stopped_goes_on_without_a_judge(
    rank: subprocess.Popen[bytes], stdin: IO[bytes], tmp_path: Path
) -> None:
    judge, peer = socket.socketpair()
    watching = watcher_of(rank, peer, 1, ["a", "a"], tmp_path)
    judge.close()
    stdin.write(b"left\n")
    stdin.close()
    watching.run()
    assert rank.poll() is None
