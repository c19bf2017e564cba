"""A judge in this process: strangers that connect to it, and ranks that never do."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.distributed import watcher
from pipeline.distributed.channel import MAX_LINE, Channel
from pipeline.distributed.exits import ExitNotice
from pipeline.distributed.progress import Report, find_hanging
from pipeline.distributed.watcher import Judge

KEY = b"key"


@pytest.fixture
def judge() -> Iterator[tuple[Judge, int]]:
    """A judge of two ranks, and the port of its server."""
    server = socket.create_server(("127.0.0.1", 0))
    with server:
        yield Judge(["a", "b"], Path("hangs"), 0.0, 3.0, (server, KEY)), server.getsockname()[1]


def turn(judge: Judge) -> None:
    """Lets the judge hear what has come by now."""
    while ready := judge.selector.select(0.05):
        for key, _ in ready:
            judge.hear(key.data)


def hello(judge: Judge, port: int, rank: int, key: bytes = KEY) -> socket.socket:
    """A connection that says that it is a rank."""
    connection = socket.create_connection(("127.0.0.1", port))
    channel = Channel(connection, key, is_server=False, host_timeout=3.0)
    turn(judge)
    channel.receive()
    channel.send("hello", rank=rank)
    turn(judge)
    return connection


@pytest.mark.parametrize(
    "said", [b'{"kind": "hello", "rank": 1}\n', b"[]\n", b"[" * 4000 + b"\n", b"x" * MAX_LINE * 2, b"", b"\xff\n"]
)
def test_a_stranger_is_no_rank_and_ends_nothing(judge: tuple[Judge, int], said: bytes) -> None:
    judging, port = judge
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        turn(judging)
        assert (judging._absent, judging._strangers, judging._ending) == ({1}, {}, None)
    for rank, key in [(1, b"guess"), (7, KEY), (0, KEY)]:
        hello(judging, port, rank, key).close()
        assert (judging._absent, judging._strangers, judging._ending) == ({1}, {}, None)
    own = hello(judging, port, 1)
    assert (judging._absent, judging._ending) == (set(), None)
    assert judging.is_ready.is_set()
    with pytest.raises(OSError, match="refused"):  # nobody else is waited for
        socket.create_connection(("127.0.0.1", port))
    own.close()
    turn(judging)
    assert judging._ending == ExitNotice(
        69, f"lost rank 1 on host b: its process ended without notice; {watcher.ADVICE}", 0.0
    )


def test_silent_strangers_are_few_and_do_not_stay(judge: tuple[Judge, int], monkeypatch: pytest.MonkeyPatch) -> None:
    judging, port = judge
    monkeypatch.setattr(watcher, "_MAX_STRANGERS", 8)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
    turn(judging)
    assert len(judging._strangers) == 11  # and one for each rank, and the last one
    judging.look(watcher._HELLO_SECONDS - 1)
    assert len(judging._strangers) == 11
    judging.look(1.0)
    assert len(judging._strangers) == 0
    own = hello(judging, port, 1)
    assert judging.is_ready.is_set()
    for connection in (*silent, own):
        connection.close()


def test_a_rank_that_sends_nothing_does_not_run_whatever_its_phase_is(judge: tuple[Judge, int]) -> None:
    judging, _ = judge
    judging.hang_timeout = 60.0
    compiles = Report("compilation", 1, 0, 7, limit=1800.0, idle=100.0)
    assert judging.age(compiles, 60.0) == compiles._replace(idle=160.0, silent=60.0)
    late = judging.age(compiles, 61.0)
    assert (late.limit, late.silent) == (60.0, 61.0)
    assert find_hanging({0: compiles._replace(collectives=8), 1: late}) == [1]
    assert judging.age(compiles._replace(phase="start"), 600.0).limit == 1800.0


def test_a_rank_that_never_connects_is_lost(judge: tuple[Judge, int]) -> None:
    judging, _ = judge
    judging.look(watcher._CONNECT_SECONDS - 1)
    assert judging._ending is None
    judging.look(1.0)
    assert judging._ending is not None
    assert judging._ending.line.startswith("lost rank 1 on host b: it never connected; allow TCP connections")


def test_a_watch_may_look_around_while_its_rank_leaves() -> None:
    class SlowSocket(socket.socket):
        def send(self, *what: Any) -> int:
            judging.join(timeout=3.0)  # time for the thread to end
            return super().send(*what)

    judging = Judge(["a"], Path("hangs"), 1.0, 3.0, None)
    judging._stop_writer = SlowSocket(fileno=judging._stop_writer.detach())
    judging.start()
    judging.stop(ExitNotice(0, "", 0.0))
    assert not judging.is_alive()
    assert judging._stop_writer.fileno() == -1
