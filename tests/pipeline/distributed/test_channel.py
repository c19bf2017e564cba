"""Signed lines between two ranks: they come whole and in order, and nobody else's are read."""

import json
import socket

import pytest

from pipeline.distributed import channel
from pipeline.distributed.channel import Channel

KEY = b"the job's key"


@pytest.fixture
def pair():
    """The two sockets of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with client, accepted:
        yield accepted, client


def connect(pair, key=KEY):
    """Both ends, greeted; the other one has another key perhaps."""
    server = Channel(pair[0], KEY, is_server=True)
    client = Channel(pair[1], key, is_server=False)
    assert server.receive() == client.receive() == {"kind": "greeting"}
    return server, client


def test_messages_come_whole_and_in_order(pair):
    server, client = connect(pair)
    client.send("report", report=[1, 2.5, "data"])
    client.send("leave")
    assert [server.receive(), server.receive()] == [{"kind": "report", "report": [1, 2.5, "data"]}, {"kind": "leave"}]
    line = client._sign(False, b"{}") + b" {}\n"
    pair[1].sendall(line[:50])
    assert server.receive() is None
    pair[1].sendall(line[50:])
    assert server.receive() == {}
    server.send("report")
    server.send("verdict", status=0)
    server.send("leave")
    assert client.wait_for("verdict", 60.0) == {"kind": "verdict", "status": 0}
    assert client.receive() == {"kind": "leave"}, "what follows is not lost"
    pair[1].close()
    with pytest.raises(EOFError):
        server.receive()


def test_after_half_a_line_nothing_more_is_sent(pair, monkeypatch):
    monkeypatch.setattr(channel, "_SEND_SECONDS", 0.1)
    server, client = connect(pair)
    for _ in range(100):  # until the buffers are full, in the middle of a line
        client.send("report", report="x" * 300_000)
    with pytest.raises((TimeoutError, BrokenPipeError)):
        client.receive()
    with pytest.raises(EOFError):
        receive_all(server)


def test_the_kernel_watches_the_other_host(pair):
    server, _ = connect(pair)
    server.watch_host(30.0)
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
    assert [pair[0].getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 30_000]
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def receive_all(server):
    """Receives what comes in several parts."""
    while True:
        server.receive()


def forged(client):
    return b"0" * 64 + b' {"kind": "end"}\n'


def unsigned(client):
    return b'{"kind": "end"}\n'


def nested(client):
    return b"[" * 40_000 + b"\n"


def too_long(client):
    return b"x" * (channel.MAX_LINE + 1) + b"\n"


def endless(client):
    return b"x" * (3 * channel.MAX_LINE)


def repeated(client):
    return 2 * (client._sign(False, b"{}") + b" {}\n")


def sent_back(client):
    """The server's own next line."""
    return client._sign(True, b"{}") + b" {}\n"


@pytest.mark.parametrize("lines", [forged, unsigned, nested, too_long, endless, repeated, sent_back])
def test_what_is_not_signed_with_the_key_is_never_parsed(pair, lines, monkeypatch):
    server, client = connect(pair)
    parsed = []
    monkeypatch.setattr(json, "loads", parsed.append)
    monkeypatch.setattr(channel, "MAX_LINE", 50_000)
    pair[1].sendall(lines(client))
    with pytest.raises(ValueError, match=r"signed|too long"):
        receive_all(server)
    assert len(parsed) <= (lines is repeated)


@pytest.mark.parametrize("hello", [b"\n", b"GET / HTTP/1.1\r\n", b"x" * 60_000])
def test_somebody_who_does_not_greet_is_refused(pair, hello, monkeypatch):
    monkeypatch.setattr(channel, "MAX_LINE", 50_000)
    server = Channel(pair[0], KEY, is_server=True)
    pair[1].sendall(hello)
    with pytest.raises(ValueError, match=r"random number|too long"):
        receive_all(server)
