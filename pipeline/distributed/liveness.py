"""Notices a lost rank or host, names it, and ends the job on all hosts.

When a rank fails, DeepSpeed's launcher ends the other ranks of its host. Ranks on other hosts would wait in a
collective until its timeout of ten minutes. Here every rank holds a connection to rank 0, and the kernel watches it.
The kernel reports at once that the process at the other end has ended. By keepalive probes it reports, after a given
time, that the host does not answer. Python sends nothing, so a rank may compute, compile, save or evaluate for any
time. The cost is one sleeping thread. A process that hangs but lives is not noticed here, but by
`pipeline.distributed.hangs`.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import NamedTuple, NoReturn

from common.errors import UserError
from pipeline.distributed import elastic, output
from pipeline.distributed.connections import rank_of, receive, send
from pipeline.distributed.exits import EXIT_FAILED, EXIT_LOST, EXIT_MISTAKE
from pipeline.distributed.rendezvous import PORTS_ADVICE, Rendezvous

_ACCEPT_SECONDS = 60.0  # for a rank to connect after the rendezvous
_HELLO_SECONDS = 30.0  # for a connected rank to say which one it is
_OTHERS_SECONDS = 2.0  # for the other ranks to find the same mistake by themselves
_VERDICT_SECONDS = 3.0  # for the cause of a broken collective: usually another rank is lost or leaves
_ADVICE = "the same command continues from the last checkpoint, on the remaining hosts as well"


class ExitNotice(NamedTuple):
    """What a rank tells the others when it leaves.

    Attributes:
        status: 0 if it is done, else the status with which the others end.
        line: the error message that they print.
        grace: seconds that they have to end by themselves.
    """

    status: int
    line: str
    grace: float


class Liveness:
    """Monitors the ranks of a job inside its `with` block, which every rank enters and leaves.

    If a rank is lost, the processes of all other ranks end with EXIT_LOST. If a rank leaves the block by an exception,
    they end with status 1. One line on each host names rank, host and reason.

    Args:
        rendezvous: of ranks that have agreed.
        seconds: time without an answer after which a host is lost, at least 3.
    """

    def __init__(self, rendezvous: Rendezvous, seconds: float) -> None:
        self._rendezvous, self._seconds = rendezvous, seconds
        self._leaving = False
        self._speaks = os.environ["LOCAL_RANK"] == "0"  # one rank a host
        self._peers: dict[int, socket.socket] = {}  # by rank: all others on rank 0, rank 0 on the others

    def __enter__(self) -> "Liveness":
        if self._rendezvous.world_size > 1:
            if self._rendezvous.rank == 0:
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
        notice = _exit_notice(self._name(self._rendezvous.rank), error)
        broken = isinstance(error, Exception) and not isinstance(error, UserError)
        if broken:  # printed first: as soon as another rank ends, the launcher ends this process as well
            traceback.print_exception(error)
        self._leaving = True
        self._tell(notice)
        if broken:
            raise SystemExit(notice.status) from None

    def expect_the_end(self) -> None:
        """Says nothing more: the job ends for another reason, which has been printed."""
        self._leaving = True

    def _name(self, rank: int) -> str:
        return f"rank {rank} on host {self._rendezvous.hosts[rank]}"

    def _accept(self) -> None:
        absent = set(range(1, self._rendezvous.world_size))
        server, token = self._rendezvous.serve("liveness")
        with server:
            server.settimeout(_ACCEPT_SECONDS)
            while absent:
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    line = f"lost {self._name(min(absent))}: it never connected; {PORTS_ADVICE}"
                    self._end(ExitNotice(EXIT_LOST, line, 0.0))
                except OSError:
                    continue
                rank = rank_of(peer, token, _HELLO_SECONDS)
                if rank in absent:
                    absent.remove(rank)
                    self._keep(rank, peer)

    def _connect(self) -> None:
        try:
            peer, token = self._rendezvous.connect("liveness")
        except UserError as error:
            self._end(ExitNotice(EXIT_LOST, f"{self._name(self._rendezvous.rank)} {error}", 0.0))
        send(peer, {"token": token, "rank": self._rendezvous.rank})
        self._keep(0, peer)

    def _keep(self, rank: int, peer: socket.socket) -> None:
        """Makes the kernel report ETIMEDOUT when the peer's host has not answered for `seconds`."""
        peer.settimeout(None)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(self._seconds / 3)))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(self._seconds / 6)))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._seconds * 1000))
        self._peers[rank] = peer

    def _watch(self) -> None:
        """The thread: sleeps until a peer leaves or is lost."""
        with selectors.DefaultSelector() as selector:
            for rank, peer in self._peers.items():
                selector.register(peer, selectors.EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select():
                    selector.unregister(key.fileobj)  # a peer sends only one notice
                    notice = self._hear(key.data)
                    if notice.status:
                        ending = threading.Timer(notice.grace, self._end, (notice,))
                        ending.daemon = True
                        ending.start()

    def _hear(self, rank: int) -> ExitNotice:
        """The notice of a peer, or the notice of its loss."""
        try:
            if words := receive(self._peers[rank]):
                return ExitNotice(*json.loads(words))
            reason = "its process ended without notice"
        except ConnectionResetError:
            reason = "its process ended without notice"
        except OSError as error:
            reason = f"its host did not answer for {self._seconds:.0f} s ({error.strerror})"
        if self._leaving:
            return ExitNotice(0, "", 0.0)
        self._speaks |= self._rendezvous.rank == 1  # rank 0 is lost, so rank 1 prints the line
        return ExitNotice(EXIT_LOST, f"lost {self._name(rank)}: {reason}; {_ADVICE}", 0.0)

    def _tell(self, notice: ExitNotice) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # gone already
                send(peer, notice)

    def _end(self, notice: ExitNotice) -> NoReturn:
        """Ends the process, whatever it is doing, after telling the others why."""
        if self._rendezvous.rank == 0:
            self._tell(notice._replace(grace=0.0))
        if self._speaks and not self._leaving:
            output.write(sys.stderr.fileno(), f"error: {notice.line}\n")
        if notice.status == EXIT_MISTAKE:
            elastic.end_agent()
        os._exit(notice.status)


def _exit_notice(name: str, error: BaseException | None) -> ExitNotice:
    """The notice of a rank that leaves, by the exception that makes it leave."""
    if error is None:
        return ExitNotice(0, "", 0.0)
    if isinstance(error, UserError):
        return ExitNotice(EXIT_MISTAKE, f"{name}: {error}", _OTHERS_SECONDS)
    if isinstance(error, KeyboardInterrupt):
        return ExitNotice(128 + signal.SIGINT, f"{name} was interrupted", 0.0)
    reason = str(error).strip().partition("\n")[0]
    return ExitNotice(EXIT_FAILED, f"{name} failed: {type(error).__name__}: {reason}", 0.0)
