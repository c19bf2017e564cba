"""Rendezvous before init_process_group, so that missing ranks can be named.

    rank 0's port, in torch's store -> each rank connects: its host, mistake and facts -> rank 0's verdict, to all

The store is at the address and port that the launcher sets (MASTER_ADDR, MASTER_PORT). Rank 0 serves it, or torchrun's
agent; the process groups use the same one later. The connections stay open: `pipeline.distributed.watch` watches the
ranks by them.

torch's store believes everybody who can reach its port. So the ranks sign what they say with the job's key: the HMAC of
what the store says, a random number among it, under the secret in the file that ALBERT_SECRET_FILE names. The secret
never travels. Without the file the key protects from nobody who can read the store.
"""

import contextlib
import hashlib
import hmac
import os
import re
import resource
import secrets
import selectors
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from common.environment import whole_number
from common.errors import UserError, one_line
from common.files.json_files import check_as, read_bytes
from pipeline.distributed import launcher
from pipeline.distributed.channel import Channel
from pipeline.distributed.exits import EXIT_LOST, EXIT_MISTAKE

T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "localhost")
"""Values of MASTER_ADDR with which all ranks are on this host."""
SECRET_FILE = "ALBERT_SECRET_FILE"
"""The variable that names the file with the secret of the jobs, the same on all hosts."""
MIN_SECRET_BYTES = 16
JOIN_SECONDS = 300.0  # imports from a cold network disk take minutes
RESOLVE_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_CONNECT_SECONDS = 20.0
_HELLO_SECONDS = 10.0  # for a connection to prove that it comes from a rank
_MAX_STRANGERS = 64  # connections at once that have not proved it, beside one for each rank


@dataclass(frozen=True)
class Answer:
    """What a rank reports: its host, its mistake ("" if it found none), and the facts that it found, by name."""

    rank: int
    host: str
    problem: str = ""
    facts: dict[str, str] = field(default_factory=dict)


def read_secret() -> bytes:
    """The secret in the file that ALBERT_SECRET_FILE names; b"" where the variable is not set.

    Raises:
        UserError: the file cannot be read, is too short, or others may read or write it.
    """
    if not (name := os.environ.get(SECRET_FILE)):
        return b""
    secret = read_bytes(Path(name), f"write it, or unset {SECRET_FILE}", max_bytes=4096).strip()
    if len(secret) < MIN_SECRET_BYTES:
        raise UserError(f"{name} has {len(secret)} bytes; write at least {MIN_SECRET_BYTES}: openssl rand -hex 32")
    if stat.S_IMODE(Path(name).stat().st_mode) & 0o077:
        raise UserError(f"{name} may be read or written by others; chmod 600 {name}")
    return secret


def check_address(address: str) -> None:
    """Raises UserError if this host cannot resolve `address`, the name of rank 0's host, within RESOLVE_SECONDS.

    It tries again until then: some clusters make the name only when rank 0's container is ready.
    """
    deadline = time.monotonic() + RESOLVE_SECONDS
    while True:
        try:
            socket.getaddrinfo(address, None)
            return
        except (OSError, ValueError) as error:  # ValueError: an empty label, or one of more than 63 characters
            if time.monotonic() >= deadline or isinstance(error, ValueError):
                raise UserError(
                    f"the environment variable MASTER_ADDR is {address[:80]!r}, and host {socket.gethostname()} cannot "
                    f"resolve it ({one_line(error)}); name rank 0's host, or give its IP address"
                ) from None
        time.sleep(_RETRY_SECONDS)


class Rendezvous:
    """Where the ranks of a job meet. Every rank must call the same methods in the same order.

    Args:
        seconds: how long rank 0 waits for the other ranks.
    Attributes:
        rank, world_size: from the environment variables that the launcher sets.
        hosts: host name of each rank, after `agree`.
        channels: to the other ranks by rank, after `agree`: of rank 0 to all, of the others to rank 0.
    """

    def __init__(self, seconds: float = JOIN_SECONDS) -> None:
        self.world_size = whole_number("WORLD_SIZE", low=1)
        self.rank = whole_number("RANK", high=self.world_size - 1)
        secret = read_secret()
        check_address(os.environ["MASTER_ADDR"])
        self.hosts = [socket.gethostname()]
        self.channels: dict[int, Channel] = {}
        self._seconds = seconds
        if self.world_size == 1:
            return
        self._store = self._open_store()
        # The same processes may meet again for another run.
        name = f"job/{self._store.add(f'jobs/{self.rank}', 1)}"
        if self.rank == 0:
            self._server = self._serve()
            self._store.set(name, f"{self._server.getsockname()[1]} {secrets.token_hex(16)}")
        job = self._ask_store(name)
        self._port = int(job.split()[0])
        self._key = hmac.digest(secret, job, hashlib.sha256)

    def agree(self, work: Callable[[], T], facts: Callable[[T], Mapping[str, str]]) -> T:
        """Calls `work` on every rank. Returns its result if all ranks came, none found a mistake, and all agree.

        Otherwise the process ends on all ranks, and rank 0 prints one line. The status is 2 if `work` raised a
        UserError or the ranks differ in one of the `facts` (values by name), and EXIT_LOST if ranks did not come.
        """
        result = None
        try:
            result = work()
            answer = Answer(self.rank, self.hosts[0], "", dict(facts(result)))
        except UserError as error:
            answer = Answer(self.rank, self.hosts[0], str(error))
        status, self.hosts = self._decide(answer) if self.rank == 0 else self._await_verdict(answer)
        if status:
            sys.exit(status)
        return result  # type: ignore[return-value]

    def _decide(self, own: Answer) -> tuple[int, list[str]]:
        """Rank 0's part: hears the other ranks and tells them the verdict. The exit status, 0 to go on, and hosts."""
        answers = {0: own} | (self._hear_all() if self.world_size > 1 else {})
        heard = [answers[rank] for rank in sorted(answers)]
        missing = [rank for rank in range(self.world_size) if rank not in answers]
        line = _absence(missing, self.world_size, self._seconds, heard) if missing else _first_problem(heard)
        if line:  # before the others end: the launcher then ends this process as well
            print(f"error: {UserError(line)}", file=sys.stderr, flush=True)
        status = EXIT_LOST if missing else EXIT_MISTAKE if line else 0
        hosts = [answer.host for answer in heard]
        for channel in self.channels.values():
            channel.send("verdict", status=status, hosts=hosts)
        return status, hosts

    def _hear_all(self) -> dict[int, Answer]:
        """Accepts connections until all ranks have come or the time is up; those of strangers are dropped."""
        answers: dict[int, Answer] = {}
        strangers: dict[Channel, float] = {}  # and the time until which each may prove that it is a rank
        deadline = time.monotonic() + self._seconds
        with selectors.DefaultSelector() as selector, self._server:
            selector.register(self._server, selectors.EVENT_READ)

            def accept() -> None:
                connection, _ = self._server.accept()
                stranger = Channel(connection, self._key, is_server=True)
                strangers[stranger] = time.monotonic() + _HELLO_SECONDS
                selector.register(connection, selectors.EVENT_READ, stranger)

            def hear(stranger: Channel) -> None:
                message = stranger.receive()
                if message is None or message["kind"] == "greeting":
                    return
                answer = check_as(message.get("answer"), Answer, "a rank", "use the same code on all hosts")
                if answer.rank not in range(1, self.world_size) or answer.rank in answers:
                    raise ValueError("no rank that is waited for")
                answers[answer.rank], self.channels[answer.rank] = answer, stranger
                forget(stranger)

            def forget(stranger: Channel) -> socket.socket:
                del strangers[stranger]
                selector.unregister(stranger.connection)
                return stranger.connection

            while len(answers) < self.world_size - 1 and time.monotonic() < deadline:
                for key, _ in selector.select(1.0):
                    try:
                        accept() if key.data is None else hear(key.data)
                    except (EOFError, OSError, ValueError):
                        if key.data is not None:
                            forget(key.data).close()
                for stranger, until in list(strangers.items()):  # the oldest one first
                    if time.monotonic() > until or len(strangers) > _MAX_STRANGERS + self.world_size:
                        forget(stranger).close()
        for stranger in strangers:
            stranger.connection.close()
        return answers

    def _await_verdict(self, own: Answer) -> tuple[int, list[str]]:
        """The other ranks' part: reports to rank 0 and waits for its verdict."""
        address = os.environ["MASTER_ADDR"]
        try:
            connection = socket.create_connection((address, self._port), timeout=_CONNECT_SECONDS)
        except OSError as error:
            self._end_lost(
                f"cannot connect to port {self._port} of {address} ({one_line(error)}); see whether rank 0 has ended, "
                "and allow TCP connections between the hosts on all ports"
            )
        channel = self.channels[0] = Channel(connection, self._key, is_server=False)
        try:
            channel.wait_for("greeting", 2 * self._seconds)
            channel.send("hello", answer=asdict(own))
            verdict = channel.wait_for("verdict", 2 * self._seconds)  # rank 0 itself waits `seconds` for the others
        except (EOFError, OSError, ValueError) as error:
            reason = one_line(error) or "its process ended, or has another secret"
            self._end_lost(f"lost rank 0 before the start ({reason}); see its host's output")
        return verdict["status"], verdict["hosts"]

    def _end_lost(self, reason: str) -> NoReturn:
        """Ends this rank, which has lost rank 0. Only this rank knows it."""
        print(f"error: rank {self.rank} on host {self.hosts[0]} {reason}", file=sys.stderr, flush=True)
        sys.exit(EXIT_LOST)

    def _ask_store(self, name: str) -> bytes:
        """Rank 0's port and a random number; waits until rank 0 has stored them."""
        try:
            job: bytes = self._store.get(name)
        except RuntimeError as error:  # torch's store has lost its server
            self._end_lost(f"lost rank 0 before the start ({one_line(error)}); see its host's output")
        if re.fullmatch(rb"[0-9]{1,5} [0-9a-f]{32}", job) is None:
            raise UserError("the store at MASTER_ADDR is of another program; give another --master_port")
        return job

    def _serve(self) -> socket.socket:
        """Rank 0's server, to which the other ranks connect."""
        on_one_host = os.environ["MASTER_ADDR"] in LOOPBACK
        backlog, dual = self.world_size + _MAX_STRANGERS, not on_one_host and socket.has_dualstack_ipv6()
        address, family = ("127.0.0.1" if on_one_host else "", 0), socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(address, family=family, dualstack_ipv6=dual, backlog=backlog)

    def _open_store(self) -> Any:
        from torch.distributed import DistNetworkError, DistStoreError, TCPStore

        address, port = os.environ["MASTER_ADDR"], whole_number("MASTER_PORT", low=1, high=65535)
        serves, listener = self.rank == 0 and not launcher.agent_serves_store(), None
        if serves and address in LOOPBACK:  # torch itself would listen on all addresses
            with contextlib.suppress(OSError):  # a store of this process, which torch finds, or another program's
                listener = socket.create_server((LOOPBACK[0], port), backlog=self.world_size).detach()
        try:
            return TCPStore(
                address,
                port,
                is_master=serves,
                timeout=timedelta(seconds=self._seconds),
                wait_for_workers=False,
                multi_tenant=True,  # the process groups' store is the same one
                master_listen_fd=listener,
            )
        except (DistNetworkError, DistStoreError) as error:
            if not serves:
                self._end_lost(
                    f"found no rank 0 at {address}:{port} within {self._seconds:.0f} s; see why rank 0 did not start, "
                    "or `python -m pipeline.preflight`"
                )
            print(
                f"error: cannot listen on port {port} ({one_line(error)}); another job may run on this host: give "
                "another --master_port",
                file=sys.stderr,
            )
            # The agent chooses another port when it starts the ranks again.
            sys.exit(EXIT_LOST if launcher.max_restarts() else EXIT_MISTAKE)


def _first_problem(answers: Sequence[Answer]) -> str:
    """The mistake of the lowest rank that found one, else the first fact that differs from rank 0's, else ""."""
    first = answers[0]
    if first.problem:
        return first.problem
    for answer in answers:
        where = f"rank {answer.rank} on host {answer.host}"
        if answer.problem:
            return f"{where}: {answer.problem}"
        for name, value in first.facts.items():
            # A rank that finds its run finished has looked at nothing else.
            if (found := answer.facts.get(name, "not known")) != value:
                return (
                    f"{where}: {name} is {found}, and {value} on host {first.host}; all hosts must "
                    "see the same files: `python -m pipeline.preflight` shows the difference"
                )
    return ""


def _absence(missing: Sequence[int], world_size: int, seconds: float, answers: Sequence[Answer]) -> str:
    """One line that names the missing ranks and the hosts of the others."""
    ranks = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    hosts = ", ".join(sorted({answer.host for answer in answers}))
    return (
        f"{len(missing)} of {world_size} ranks did not come within {seconds:.0f} s: {ranks}; the others came from "
        f"{hosts}; `python -m pipeline.preflight` shows what is wrong on which host"
    )


def raise_file_limit() -> None:
    """Lets this process open as many files as the hard limit allows: rank 0 holds several for each rank."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def reserve_port() -> int:
    """A free TCP port that the system gives to no other process as long as this one lives.

    The socket is bound and does not listen. Linux then never chooses the port for another socket, but lets a socket
    that names the port and sets SO_REUSEADDR, as torch's store does, listen on it.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = int(reserved.getsockname()[1])
    reserved.detach()  # stays open until the process ends
    return port
