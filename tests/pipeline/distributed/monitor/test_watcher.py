"""A watcher and a judge, each in this process, beside a process that stands in for the rank."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from pipeline.distributed.monitor import progress, stacks, watcher
from pipeline.distributed.monitor.channel import Channel
from pipeline.distributed.monitor.watcher import ExitNotice, Judge, Task, Watcher


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[bytes]]:
    """The rank's end of the pipe to its watcher."""
    end, ours = os.pipe()
    with open(end, "rb") as own, open(ours, "wb", buffering=0) as other:
        monkeypatch.setattr(sys, "stdin", own)
        yield other


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_KILL_SECONDS", 0.1)


def task_of(pid: int, connection: socket.socket | None, number: int, hosts: str, folder: Path, **other: Any) -> Task:
    memory = progress.get_progress().descriptor
    values: dict[str, Any] = {
        "speaks": hosts.index(hosts[number]) == number, "connect_seconds": 600.0, "finds_hangs": True, "tick": 0.05,
    }  # fmt: skip
    descriptor = None if connection is None else connection.detach()
    return Task(
        number, pid, memory, memory, descriptor, "token", list(hosts), output=str(folder), host_timeout=3.0,
        **(values | other),
    )  # fmt: skip


@pytest.mark.parametrize(("hosts", "number", "speaks"), [("abb", 1, True), ("abb", 2, False), ("aaa", 1, True)])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_rank_ends_with_its_judge_also_while_it_is_stopped(
    rank: subprocess.Popen[bytes],
    stdin: IO[bytes],
    hosts: str,
    number: int,
    speaks: bool,
    is_stopped: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(stacks, "collect", lambda *arguments: "stacks")
    judge, peer = socket.socketpair()
    watching = Watcher(task_of(rank.pid, peer, number, hosts, tmp_path))
    if is_stopped:
        Channel(judge, 3.0).send("collect")
    judge.shutdown(socket.SHUT_WR)
    with judge, pytest.raises(SystemExit):
        watching.run()
    assert rank.wait(60) == -signal.SIGKILL
    shown = capfd.readouterr()
    assert shown.out.strip() == "end 69"
    line = "error: lost rank 0 on host a: its process ended without notice; "
    assert shown.err.startswith(line) if speaks else shown.err == ""


def test_a_judge_that_has_left_is_not_lost(rank: subprocess.Popen[bytes], stdin: IO[bytes], tmp_path: Path) -> None:
    judge, peer = socket.socketpair()
    watching = Watcher(task_of(rank.pid, peer, 1, "aa", tmp_path))
    Channel(judge, 3.0).send("leave")
    judge.close()
    stdin.write(json.dumps(ExitNotice(0, "", 0.0)).encode() + b"\n")
    watching.run()
    assert rank.poll() is None


class FakeTime:
    """A clock that only `select` moves on, by as long as it may wait."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def select(self, timeout: float) -> list[Any]:
        self.waits.append(timeout)
        self.now += max(timeout, 1e-6)
        return []


def test_a_watcher_sleeps_between_its_reports(
    stdin: IO[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, reports = FakeTime(), []
    monkeypatch.setattr(time, "monotonic", fake.monotonic)
    judge = Judge(task_of(os.getpid(), None, 0, "a", tmp_path, tick=1.0))
    monkeypatch.setattr(judge.selector, "select", fake.select)

    def tick(seconds: float) -> None:
        reports.append(seconds)
        if len(reports) == 20:
            judge._parent = 0  # as if the rank had ended

    monkeypatch.setattr(judge, "tick", tick)
    judge.run()
    assert sum(reports) == pytest.approx(19.0)
    assert len(fake.waits) <= 21


@pytest.fixture
def judge(stdin: IO[bytes], tmp_path: Path) -> tuple[Judge, int]:
    """A judge of two ranks, and the port of its server."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    return Judge(task_of(os.getpid(), server, 0, "ab", tmp_path, finds_hangs=False)), port


def turn(judge: Judge) -> None:
    """Lets the judge hear what has come by now."""
    while ready := judge.selector.select(0.05):
        for key, _ in ready:
            judge.hear(key.data)


@pytest.mark.parametrize(
    "hello",
    [
        b'{"token": "guess", "rank": 1}\n', '{"token": "gehe\u00efm", "rank": 1}\n'.encode(), b'{"rank": 1}\n',
        b'{"token": "token", "rank": 7}\n', b'{"token": "token", "rank": Infinity}\n', b'{"token": "token"}\n',
        b"[]\n", b"1\n", b"[" * 4000 + b"\n", b"x" * 5000, b"",
    ],
)  # fmt: skip
def test_a_stranger_is_no_rank_and_ends_nothing(judge: tuple[Judge, int], hello: bytes) -> None:
    judging, port = judge
    with (
        socket.create_connection(("127.0.0.1", port)) as stranger,
        socket.create_connection(("127.0.0.1", port)) as own,
    ):
        stranger.sendall(hello)
        stranger.shutdown(socket.SHUT_WR)
        turn(judging)
        assert (judging._absent, judging._ending) == ({1}, None)
        Channel(own, 3.0).send("hello", token="token", rank=1)
        turn(judging)
        assert (judging._absent, judging._ending) == (set(), None)
    turn(judging)
    assert judging._ending == ExitNotice(
        69, f"lost rank 1 on host b: its process ended without notice; {watcher.ADVICE}", 0.0
    )


def test_a_rank_that_never_connects_is_lost(judge: tuple[Judge, int]) -> None:
    judging, _ = judge
    judging.tick(599.0)
    assert judging._ending is None
    judging.tick(1.0)
    assert judging._ending is not None
    assert judging._ending.line.startswith("lost rank 1 on host b: it never connected; allow TCP connections")
