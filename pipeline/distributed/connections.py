"""Connections between ranks: a server on a free port, and lines of JSON.

Only the standard library is imported: the watchers of `pipeline.distributed.hangs` use this module as well.
"""

import json
import secrets
import socket
from typing import Any


def listen(on_one_host: bool, backlog: int) -> socket.socket:
    """A server on a free port: of the loopback address, or of all addresses in both versions of IP."""
    if on_one_host:
        return socket.create_server(("127.0.0.1", 0), backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    return socket.create_server(("", 0), backlog=backlog)


def send(peer: socket.socket, value: Any) -> None:
    """Sends a value as a line of JSON."""
    peer.sendall(json.dumps(value).encode() + b"\n")


def receive(peer: socket.socket) -> str:
    """A line; "" if the peer has closed the connection."""
    line = b""
    while not line.endswith(b"\n"):
        part = peer.recv(1)  # byte by byte, so that nothing of the next line is read
        if not part:
            return ""
        line += part
    return line.decode()


def rank_of(peer: socket.socket, token: str, seconds: float) -> int | None:
    """The rank that has connected and says so with the token; None for anybody else, such as a scanner of ports.

    Args:
        seconds: how long to wait for the next byte.
    """
    peer.settimeout(seconds)
    try:
        hello = json.loads(receive(peer))
        return int(hello["rank"]) if secrets.compare_digest(str(hello["token"]), token) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
