"""A connection between two watchers, which carries lines of JSON. The kernel tells when the other host is lost."""

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

_MAX_HELLO_BYTES = 4096  # of a connection that has not shown the token
_SEND_SECONDS = 6.0


class Channel:
    """A connection that carries lines of JSON.

    Attributes:
        rank: at the other end; None before it has shown the token.
        has_left: whether that rank has left its watch.
    """

    def __init__(self, connection: socket.socket, host_timeout: float, rank: int | None = None) -> None:
        self.connection, self.rank, self.has_left = connection, rank, False
        self._rest = b""
        connection.settimeout(_SEND_SECONDS)  # a host that is gone takes nothing
        if connection.family != socket.AF_UNIX:
            # The kernel reports ETIMEDOUT when the host has not answered for `host_timeout`.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(host_timeout / 3)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(host_timeout / 6)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(host_timeout * 1000))

    def send(self, kind: str, **values: Any) -> None:
        """Sends a message. What cannot be sent is dropped: the next `messages` says that the connection has ended."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps({"kind": kind, **values}).encode() + b"\n")

    def messages(self) -> Iterator[dict[str, Any]]:
        """The complete messages that have come.

        Raises:
            EOFError: the other end has closed the connection.
            OSError: the connection is lost.
            ValueError: somebody without the token sends something else.
        """
        part = self.connection.recv(1 << 16)
        if not part:
            raise EOFError
        *lines, self._rest = (self._rest + part).split(b"\n")
        if self.rank is None and len(max([*lines, self._rest], key=len)) > _MAX_HELLO_BYTES:
            raise ValueError
        for line in lines:
            try:
                yield json.loads(line)
            except RecursionError:
                raise ValueError from None
