"""What a judge takes from a connection: messages of watchers, and nothing from anybody else."""

import socket

import pytest

from pipeline.distributed.monitor.channel import Channel


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_come_whole_and_in_order(pair):
    ours, theirs = pair
    sender, receiver = Channel(theirs, 30.0), Channel(ours, 30.0)
    sender.send("report", report=[1, 2.5, "data"])
    theirs.sendall(b'{"kind": ')
    assert list(receiver.messages()) == [{"kind": "report", "report": [1, 2.5, "data"]}]
    theirs.sendall(b'"leave"}\n')
    assert list(receiver.messages()) == [{"kind": "leave"}]
    theirs.close()
    with pytest.raises(EOFError):
        list(receiver.messages())


@pytest.mark.parametrize("said", [b"x" * 5000, b"GET / HTTP/1.1\r\n", b"\xff\n", b"[" * 4000 + b"\n"])
def test_somebody_else_is_refused(pair, said):
    ours, theirs = pair
    theirs.sendall(said)
    with pytest.raises((ValueError, EOFError)):
        list(Channel(ours, 30.0).messages())


def test_a_watcher_that_has_shown_the_token_may_send_long_lines(pair):
    ours, theirs = pair
    Channel(theirs, 30.0).send("stacks", text="x" * 5000)
    (message,) = Channel(ours, 30.0, rank=1).messages()
    assert len(message["text"]) == 5000


def test_what_a_lost_peer_does_not_take_is_dropped(pair):
    ours, theirs = pair
    theirs.close()
    Channel(ours, 30.0).send("leave")
