"""A lost rank or host ends the job everywhere, soon, and by name.

DeepSpeed's launcher ends the ranks of the host on which one has failed; those of the other hosts would wait in a
collective until it times out, ten minutes. Here every rank holds a connection to rank 0. The kernel watches it: it
reports at once when the process at the other end is gone, and with keepalive probes, after a stated time, when the
host does not answer. Nothing is sent by Python, so a rank that computes, compiles, saves or evaluates for however
long is not lost, and it costs a thread that sleeps. A process that hangs, but lives, is left to the timeout of the
collectives.
"""

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from data_prep.errors import UserError
from pipeline.rendezvous import EXIT_LOST, Meeting

_CONNECT_SECONDS = 60.0  # all ranks have just met
_OTHERS_SECONDS = 2.0  # for the other ranks to find the mistake that one of them has found
_VERDICT_SECONDS = 3.0  # a collective that breaks is most often the effect of a rank lost or leaving elsewhere
_ADVICE = "the same command goes on from the last checkpoint, also on the hosts that are left"


class Parting(NamedTuple):
    """A rank's last words.

    Attributes:
        status: 0 where it leaves in peace, else the status with which the others end.
        line: what they say.
        grace: seconds that they have to end by themselves.
    """

    status: int
    line: str
    grace: float


class Liveness:
    """Watches over the ranks of a job inside of its `with` block, which every rank enters and leaves.

    A rank that is lost ends the process of every other one with EXIT_LOST; one that leaves the block by an exception
    ends them with status 1. A line on each host names rank, host and reason.

    Args:
        meeting: of ranks that have agreed.
        seconds: after which a host that does not answer is lost, at least 3.
    """

    def __init__(self, meeting: Meeting, seconds: float) -> None:
        self._meeting, self._seconds = meeting, seconds
        self._leaving = False
        self._speaks = os.environ["LOCAL_RANK"] == "0"  # one rank a host
        self._peers: dict[int, socket.socket] = {}  # by rank: all others on rank 0, rank 0 on the others

    def __enter__(self) -> "Liveness":
        if self._meeting.world_size > 1:
            if self._meeting.rank == 0:
                self._accept()
            else:
                self._connect()
            threading.Thread(target=self._watch, name="liveness", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._peers:
            return
        if isinstance(error, RuntimeError):
            time.sleep(_VERDICT_SECONDS)  # the watching thread may end the process meanwhile
        parting = _parting(self._name(self._meeting.rank), error)
        broken = isinstance(error, Exception) and not isinstance(error, UserError)
        if broken:  # shown before the others know of it: the first that leaves has the launcher end this process, too
            traceback.print_exception(error)
        self._leaving = True
        self._tell(parting)
        if broken:
            raise SystemExit(parting.status) from None

    def _name(self, rank: int) -> str:
        return f"rank {rank} on host {self._meeting.hosts[rank]}"

    def _accept(self) -> None:
        on_one_host = os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost")
        token = secrets.token_hex(16)  # a stranger who finds the port is not a rank
        absent = set(range(1, self._meeting.world_size))
        with _listen(on_one_host, backlog=len(absent)) as server:
            self._meeting.tell("liveness", json.dumps([server.getsockname()[1], token]))
            server.settimeout(_CONNECT_SECONDS)
            while absent:
                try:
                    peer, _ = server.accept()
                    peer.settimeout(_CONNECT_SECONDS)
                    hello = json.loads(_receive(peer))
                except TimeoutError:
                    self._end(Parting(EXIT_LOST, f"lost {self._name(min(absent))}: it never connected", 0.0))
                except (OSError, ValueError):
                    continue
                if secrets.compare_digest(str(hello["token"]), token):
                    absent.remove(hello["rank"])
                    self._keep(hello["rank"], peer)

    def _connect(self) -> None:
        port, token = json.loads(self._meeting.ask("liveness"))
        peer = socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=_CONNECT_SECONDS)
        _send(peer, {"token": token, "rank": self._meeting.rank})
        self._keep(0, peer)

    def _keep(self, rank: int, peer: socket.socket) -> None:
        """Has the kernel report the peer's host as gone (ETIMEDOUT) once it has not answered for `seconds`."""
        peer.settimeout(None)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(self._seconds / 3)))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(self._seconds / 6)))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._seconds * 1000))
        self._peers[rank] = peer

    def _watch(self) -> None:
        """The thread: sleeps until a peer leaves, with a word or without."""
        with selectors.DefaultSelector() as selector:
            for rank, peer in self._peers.items():
                selector.register(peer, selectors.EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select():
                    selector.unregister(key.fileobj)  # what a peer says is the last of it
                    parting = self._hear(key.data)
                    if parting.status:
                        ending = threading.Timer(parting.grace, self._end, (parting,))
                        ending.daemon = True
                        ending.start()

    def _hear(self, rank: int) -> Parting:
        """The parting words of a peer, or what its silence means."""
        try:
            if words := _receive(self._peers[rank]):
                return Parting(*json.loads(words))
            reason = "its process ended without a word"
        except ConnectionResetError:
            reason = "its process ended without a word"
        except OSError as error:
            reason = f"its host did not answer for {self._seconds:.0f} s ({error.strerror})"
        if self._leaving:
            return Parting(0, "", 0.0)
        self._speaks |= self._meeting.rank == 1  # on rank 0's host, where rank 0 cannot any more
        return Parting(EXIT_LOST, f"lost {self._name(rank)}: {reason}; {_ADVICE}", 0.0)

    def _tell(self, parting: Parting) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # gone already
                _send(peer, parting)

    def _end(self, parting: Parting) -> NoReturn:
        """Ends the process, in whatever it is, once the others know why."""
        if self._meeting.rank == 0:
            self._tell(parting._replace(grace=0.0))
        if self._speaks and not self._leaving:
            os.write(sys.stderr.fileno(), f"error: {parting.line}\n".encode())  # no lock that the main thread may hold
        os._exit(parting.status)


def _parting(name: str, error: BaseException | None) -> Parting:
    """What a rank says as it leaves, by the exception that makes it leave."""
    if error is None:
        return Parting(0, "", 0.0)
    if isinstance(error, UserError):
        return Parting(2, f"{name}: {error}", _OTHERS_SECONDS)
    if isinstance(error, KeyboardInterrupt):
        return Parting(128 + signal.SIGINT, f"{name} was interrupted", 0.0)
    reason = str(error).strip().partition("\n")[0]
    return Parting(1, f"{name} failed: {type(error).__name__}: {reason}", 0.0)


def _listen(on_one_host: bool, backlog: int) -> socket.socket:
    """A server on a port of the system's choice: of the loopback, or of all addresses, in both versions of IP."""
    if on_one_host:
        return socket.create_server(("127.0.0.1", 0), backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    return socket.create_server(("", 0), backlog=backlog)


def _send(peer: socket.socket, value: Any) -> None:
    peer.sendall(json.dumps(value).encode() + b"\n")


def _receive(peer: socket.socket) -> str:
    """A line; "" where the peer has closed the connection."""
    line = b""
    while not line.endswith(b"\n"):
        part = peer.recv(1)  # not one byte of what is said next
        if not part:
            return ""
        line += part
    return line.decode()
