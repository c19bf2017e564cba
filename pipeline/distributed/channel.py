"""A connection between two ranks that carries signed lines of JSON.

Each side first sends a random number. Both numbers and the job's key give the key of the connection. Every later line
begins with its HMAC under that key, which covers its direction and its number. A line is parsed only if its HMAC is
right, so a stranger can neither forge nor repeat one.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
from typing import Any

MAX_LINE = 1 << 16
_NONCE_BYTES = 16
_SEND_SECONDS = 6.0


class Channel:
    """One end of a connection.

    Args:
        key: of the job.
        is_server: whether this end has accepted the connection.
        host_timeout: seconds without an answer after which the kernel reports that the other host is lost.
    Attributes:
        rank: at the other end; None before it has proved that it knows the key.
        has_left: whether that rank has left its watch.
    """

    def __init__(self, connection: socket.socket, key: bytes, is_server: bool, host_timeout: float) -> None:
        self.connection, self.rank, self.has_left = connection, None if is_server else 0, False
        self._key, self._is_server = key, is_server
        self._nonce = secrets.token_hex(_NONCE_BYTES).encode()
        self._session = b""
        self._rest = b""
        self._counts = {True: 0, False: 0}  # lines by direction: True from the server
        connection.settimeout(_SEND_SECONDS)  # a host that is gone takes nothing
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(host_timeout / 3)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(host_timeout / 6)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(host_timeout * 1000))
        with contextlib.suppress(OSError):
            connection.sendall(self._nonce + b"\n")

    def send(self, kind: str, **values: Any) -> None:
        """Sends a message. What cannot be sent is dropped: the next `receive` says that the connection has ended.

        It can be called once `receive` has returned the greeting.
        """
        line = json.dumps({"kind": kind, **values}).encode()
        with contextlib.suppress(OSError):
            self.connection.sendall(self._sign(self._is_server, line) + b" " + line + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """The complete messages that have come; a "greeting" first. Waits for something to come.

        Raises:
            EOFError: the other end has closed the connection.
            OSError: the connection is lost.
            ValueError: a line is too long, or is not signed with the key.
        """
        part = self.connection.recv(MAX_LINE)
        if not part:
            raise EOFError
        *lines, self._rest = (self._rest + part).split(b"\n")
        if max(map(len, [*lines, self._rest])) > MAX_LINE:
            raise ValueError("a line is too long")
        return [self._read(line) for line in lines]

    def _read(self, line: bytes) -> dict[str, Any]:
        """The message in a line; the first line is the other side's random number, and gives the key."""
        if not self._session:
            if len(line) != 2 * _NONCE_BYTES:
                raise ValueError("no random number")
            first, second = (self._nonce, line) if self._is_server else (line, self._nonce)
            self._session = hmac.digest(self._key, first + second, hashlib.sha256)
            return {"kind": "greeting"}
        signature, _, text = line.partition(b" ")
        if not hmac.compare_digest(signature, self._sign(not self._is_server, text)):
            raise ValueError("a line is not signed with the job's key")
        message: dict[str, Any] = json.loads(text)
        return message

    def _sign(self, from_server: bool, text: bytes) -> bytes:
        """The HMAC of the next line in a direction, in hexadecimal."""
        number = self._counts[from_server]
        self._counts[from_server] += 1
        return hmac.new(self._session, b"%d %d %s" % (from_server, number, text), hashlib.sha256).hexdigest().encode()
