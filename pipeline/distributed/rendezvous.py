"""Rendezvous before init_process_group, so that missing ranks can be named.

Rank 0 opens torch's key-value store at the address and port that the launcher sets (MASTER_ADDR, MASTER_PORT); the
process groups use the same store later. Under torchrun, its agent may serve the store. Each rank reports its host, its
mistake if it found one, and the facts on which it must agree with rank 0. Rank 0 decides for all ranks.

torch's store believes everybody who can reach its port. So each value in it is signed with the job's key: the HMAC of
a random number of rank 0 under the secret in the file that ALBERT_SECRET_FILE names. The secret never travels. Without
the file the key protects from nobody who can read the store.
"""

import contextlib
import errno
import functools
import hashlib
import hmac
import json
import os
import resource
import secrets
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Interval

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
PORTS_ADVICE = "allow TCP connections between the hosts on all ports"
_CONNECT_SECONDS = 20.0  # shorter than rank 0 waits for the connections, so that the rank says the reason
_RETRY_SECONDS = 1.0
_MAX_BYTES = 1 << 20  # of a value in the store
_LEAVE_SECONDS = 5.0  # for the others to read the verdict: rank 0's end closes its store


Port = Annotated[int, Interval(ge=1, le=65535)]


@dataclass(frozen=True)
class Answer:
    """What a rank reports: its host, its mistake ("" if it found none), and the facts that it found, by name."""

    host: str
    problem: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What rank 0 decides: the exit status of all ranks (0: go on), the line to print, and the host of each rank."""

    status: int
    line: str
    hosts: list[str]


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
    """

    def __init__(self, seconds: float = JOIN_SECONDS) -> None:
        self.world_size = whole_number("WORLD_SIZE", low=1)
        self.rank = whole_number("RANK", high=self.world_size - 1)
        self._secret = read_secret()
        check_address(os.environ["MASTER_ADDR"])
        self.hosts = [socket.gethostname()]
        self._seconds = seconds
        self._store = self._open() if self.world_size > 1 else None
        if self._store is not None and self.rank == 0:
            self._store.set("job", secrets.token_hex(16))

    @functools.cached_property
    def _key(self) -> bytes:
        """The key of this job. Another rank waits until rank 0 has stored its random number."""
        assert self._store is not None
        return hmac.digest(self._secret, self._store.get("job"), hashlib.sha256)

    def agree(self, work: Callable[[], T], facts: Callable[[T], Mapping[str, str]]) -> T:
        """Calls `work` on every rank. Returns its result if all ranks came, none found a mistake, and all agree.

        Otherwise the process ends on all ranks, and rank 0 prints one line. The status is 2 if `work` raised a
        UserError or the ranks differ in one of the `facts` (values by name), and EXIT_LOST if ranks did not come.
        """
        result = None
        try:
            result = work()
            answer = Answer(self.hosts[0], "", dict(facts(result)))
        except UserError as error:
            answer = Answer(self.hosts[0], str(error))
        try:
            verdict = self._decide(answer) if self.rank == 0 else self._await_verdict(answer)
        except UserError as error:  # the store holds something else than rank 0's verdict
            print(f"error: {error}", file=sys.stderr, flush=True)
            sys.exit(EXIT_MISTAKE)
        if verdict.status:
            if self.rank == 0:
                print(f"error: {UserError(verdict.line)}", file=sys.stderr, flush=True)
            self.leave()
            sys.exit(verdict.status)
        self.hosts = verdict.hosts
        return result  # type: ignore[return-value]

    def leave(self) -> None:
        """Ends a rank's part before its process ends without training. Rank 0 waits until the others have left."""
        if self._store is None:
            return
        with contextlib.suppress(RuntimeError):  # rank 0 has left already, and its store with it
            if self._store.add("left", 1) < self.world_size and self.rank == 0:
                deadline = time.monotonic() + _LEAVE_SECONDS
                while self._store.add("left", 0) < self.world_size and time.monotonic() < deadline:
                    time.sleep(0.05)

    def tell(self, name: str, value: Any) -> None:
        """Stores a JSON value for the other ranks, signed."""
        if self._store is not None:
            text = json.dumps(value).encode()
            self._store.set(name, self._sign(name, text) + b" " + text)

    def ask(self, name: str, kind: type[T]) -> T:
        """The value of this kind that another rank stores under this name; waits for it.

        Raises:
            UserError: something else is there, which no rank with this job's secret has written.
        """
        assert self._store is not None
        content = self._store.get(name)
        signature, _, text = content.partition(b" ")
        if len(content) > _MAX_BYTES or not hmac.compare_digest(signature, self._sign(name, text)):
            raise UserError(
                f"{name} in the store at MASTER_ADDR is not signed with this job's secret; give all hosts the same "
                f"{SECRET_FILE}, and see who else can reach the port"
            )
        return check_as(json.loads(text), kind, f"{name} in the store at MASTER_ADDR", "use the same code on all hosts")

    def _sign(self, name: str, text: bytes) -> bytes:
        return hmac.new(self._key, name.encode() + b" " + text, hashlib.sha256).hexdigest().encode()

    def serve(self) -> tuple[socket.socket, bytes]:
        """Opens a server that the other ranks `connect` to. Returns it with the key of their channels.

        Called on rank 0.
        """
        on_one_host = os.environ["MASTER_ADDR"] in LOOPBACK
        dual = not on_one_host and socket.has_dualstack_ipv6()
        address, family = ("127.0.0.1" if on_one_host else "", 0), socket.AF_INET6 if dual else socket.AF_INET
        server = socket.create_server(address, family=family, dualstack_ipv6=dual, backlog=self.world_size)
        self.tell("server", server.getsockname()[1])
        return server, self._key

    def connect(self, host_timeout: float) -> Channel:
        """Connects to rank 0's server.

        UserError: it cannot connect, or rank 0 has ended. Only this rank knows it.
        """
        try:
            port = self.ask("server", Port)
        except RuntimeError as error:  # torch's store has lost its server
            raise UserError(f"lost rank 0 before training ({one_line(error)}); see its host's output") from error
        address = os.environ["MASTER_ADDR"]
        try:
            peer = socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
            return Channel(peer, self._key, is_server=False, host_timeout=host_timeout)
        except OSError as error:
            reason = f"cannot connect to port {port} of {address} ({one_line(error)})"
            raise UserError(f"{reason}; {PORTS_ADVICE}") from error

    def _open(self) -> Any:
        from torch.distributed import DistNetworkError, DistStoreError, PrefixStore, TCPStore

        address, port = os.environ["MASTER_ADDR"], whole_number("MASTER_PORT", low=1, high=65535)
        serves = self.rank == 0 and not launcher.agent_serves_store()
        try:
            listener = self._listen(port) if serves and address in LOOPBACK else None
            store = TCPStore(
                address,
                port,
                is_master=serves,
                timeout=timedelta(seconds=self._seconds),
                wait_for_workers=False,
                multi_tenant=True,  # the process groups' store is the same one
                master_listen_fd=listener,
            )
        except (OSError, DistNetworkError, DistStoreError) as error:
            if serves:
                print(
                    f"error: cannot listen on port {port} ({one_line(error)}); another job may run on this host: "
                    "give another --master_port",
                    file=sys.stderr,
                )
                # The agent chooses another port when it starts the ranks again.
                sys.exit(EXIT_LOST if launcher.max_restarts() else EXIT_MISTAKE)
            print(
                f"error: rank {self.rank} on host {self.hosts[0]} found no rank 0 at {address}:{port} within "
                f"{self._seconds:.0f} s; see why rank 0 did not start, or `python -m pipeline.preflight`",
                file=sys.stderr,
            )
            sys.exit(EXIT_LOST)
        # The same processes may meet again for another run. Each rendezvous has its own prefix.
        return PrefixStore(f"rendezvous/{store.add(f'rendezvous_count/{self.rank}', 1)}", store)

    def _listen(self, port: int) -> int | None:
        """A descriptor that listens on the loopback address; torch itself would listen on all addresses.

        None if the port is taken: this process may serve a store on it already, which torch then finds. Otherwise torch
        raises DistNetworkError.
        """
        try:
            return socket.create_server(("127.0.0.1", port), backlog=self.world_size).detach()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None

    def _decide(self, own: Answer) -> Verdict:
        """Rank 0's part: waits for the other ranks' answers and tells them the verdict."""
        answers, missing = [own], []
        deadline = time.monotonic() + self._seconds
        for rank in range(1, self.world_size):
            if self._wait_for(f"answer/{rank}", deadline):
                answers.append(self._read_answer(rank))
            else:
                missing.append(rank)
        problem = _absence(missing, self.world_size, self._seconds, answers) if missing else _first_problem(answers)
        status = EXIT_LOST if missing else EXIT_MISTAKE if problem else 0
        verdict = Verdict(status, problem, [answer.host for answer in answers])
        self.tell("verdict", asdict(verdict))
        return verdict

    def _read_answer(self, rank: int) -> Answer:
        """What a rank has reported; a problem if the store holds something else."""
        try:
            return self.ask(f"answer/{rank}", Answer)
        except UserError as error:
            return Answer("unknown", str(error))

    def _wait_for(self, name: str, deadline: float) -> bool:
        """Whether a value of this name is stored before `deadline`."""
        assert self._store is not None
        while not self._store.check([name]):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _await_verdict(self, own: Answer) -> Verdict:
        """The other ranks' part: report to rank 0 and wait for its verdict."""
        assert self._store is not None
        self._store.set_timeout(timedelta(seconds=2 * self._seconds))  # rank 0 itself waits `seconds` for the others
        try:
            self.tell(f"answer/{self.rank}", asdict(own))
            return self.ask("verdict", Verdict)
        except RuntimeError as error:  # torch's store has lost its server
            print(f"error: lost rank 0 before the start ({one_line(error)}); see its host's output", file=sys.stderr)
            sys.exit(EXIT_LOST)


def _first_problem(answers: Sequence[Answer]) -> str:
    """The mistake of the lowest rank that found one, else the first fact that differs from rank 0's, else ""."""
    first = answers[0]
    if first.problem:
        return first.problem
    for rank, answer in enumerate(answers):
        where = f"rank {rank} on host {answer.host}"
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
    hosts = sorted({answer.host for answer in answers})
    return (
        f"{len(missing)} of {world_size} ranks did not come within {seconds:.0f} s "
        f"(rank{'s' if len(missing) > 1 else ''} {ranks}; the others came from host{'s' if len(hosts) > 1 else ''} "
        f"{', '.join(hosts)}); `python -m pipeline.preflight` shows what is wrong on which host"
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
