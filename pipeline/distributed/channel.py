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

MAX_LINE = 1 << 20
_NONCE_BYTES = 16
_SEND_SECONDS = 6.0


class Channel:
    """One end of a connection.

    Args:
        key: of the job.
        is_server: whether this end has accepted the connection.
    """

    def __init__(self, connection: socket.socket, key: bytes, is_server: bool) -> None:
        self.connection = connection
        self._key, self._is_server = key, is_server
        self._nonce = secrets.token_hex(_NONCE_BYTES).encode()
        self._session = b""
        self._rest = b""
        self._counts = {True: 0, False: 0}  # lines by direction: True from the server
        self._failure: Exception = EOFError()
        connection.settimeout(_SEND_SECONDS)  # a host that is gone takes nothing
        self._send_line(self._nonce)

    def watch_host(self, seconds: float) -> None:
        """From now on the kernel reports that the other host is lost after so many seconds without an answer."""
        for option, value in {
            socket.TCP_KEEPIDLE: max(1, int(seconds / 3)),
            socket.TCP_KEEPINTVL: max(1, int(seconds / 6)),
            socket.TCP_USER_TIMEOUT: int(seconds * 1000),
        }.items():
            self.connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, kind: str, **values: Any) -> None:
        """Sends a message, once `receive` has returned the greeting. If that fails, the next `receive` raises why."""
        line = json.dumps({"kind": kind, **values}).encode()
        self._send_line(self._sign(self._is_server, line) + b" " + line)

    def _send_line(self, line: bytes) -> None:
        try:
            self.connection.sendall(line + b"\n")
        except OSError as error:  # maybe after half a line: nothing more can be sent
            self._failure = error
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def receive(self) -> dict[str, Any] | None:
        """Waits for something to come. Returns the next message, or None as long as it is incomplete.

        The first message is a "greeting".

        Raises:
            EOFError: the other end has closed the connection.
            OSError: the connection is lost.
            ValueError: a line is too long, or is not signed with the key.
        """
        part = self.connection.recv(MAX_LINE, socket.MSG_PEEK)
        part = self.connection.recv(part.find(b"\n") + 1 or len(part))
        if not part:
            raise self._failure
        self._rest += part
        if len(self._rest) > MAX_LINE:
            raise ValueError("a line is too long")
        if not self._rest.endswith(b"\n"):
            return None
        line, self._rest = self._rest[:-1], b""
        return self._read(line)

    def wait_for(self, kind: str, seconds: float) -> dict[str, Any]:
        """Waits for the next message of a kind. It raises what `receive` does, and TimeoutError after `seconds`."""
        self.connection.settimeout(seconds)
        while (message := self.receive()) is None or message["kind"] != kind:
            pass
        self.connection.settimeout(_SEND_SECONDS)
        return message

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
