"""Rendezvous before init_process_group, so that missing ranks can be named.

Rank 0 opens torch's key-value store at the address and port that the launcher sets (MASTER_ADDR, MASTER_PORT); the
process groups use the same store later. Under torchrun, its agent may serve the store (`elastic.shares_store`). Each
rank reports its host, its mistake if it found one, and the facts on which it must agree with rank 0. Rank 0 decides for
all ranks.
"""

import errno
import json
import os
import resource
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from common.environment import whole_number
from common.errors import UserError, one_line
from pipeline.distributed import elastic
from pipeline.distributed.exits import EXIT_LOST, EXIT_MISTAKE

T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "localhost")
"""Values of MASTER_ADDR with which all ranks are on this host."""
JOIN_SECONDS = 300.0  # imports from a cold network disk take minutes
RESOLVE_SECONDS = 30.0
PORTS_ADVICE = "allow TCP connections between the hosts on all ports"
_CONNECT_SECONDS = 20.0  # shorter than rank 0 waits for the connections, so that the rank says the reason
_RETRY_SECONDS = 1.0
_LEAVE_SECONDS = 5.0  # for the others to read the verdict: rank 0's end closes its store


def check_address(address: str) -> None:
    """Raises UserError if this host cannot resolve `address`, the name of rank 0's host, within RESOLVE_SECONDS.

    It tries again until then: some clusters make the name only when rank 0's container is ready.
    """
    deadline = time.monotonic() + RESOLVE_SECONDS
    while True:
        try:
            socket.getaddrinfo(address, None)
            return
        except OSError as error:
            reason, is_final = error.strerror or str(error), time.monotonic() >= deadline
        except ValueError:  # an empty label, one of more than 63 characters, or a NUL byte
            reason, is_final = "it is no host name", True
        if is_final:
            raise UserError(
                f"the environment variable MASTER_ADDR is {address[:80]!r}, and host {socket.gethostname()} cannot "
                f"resolve it ({reason}); name rank 0's host, or give its IP address"
            )
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
        check_address(os.environ["MASTER_ADDR"])
        self.hosts = [socket.gethostname()]
        self._seconds = seconds
        self._store = self._open() if self.world_size > 1 else None

    def agree(self, work: Callable[[], T], facts: Callable[[T], Mapping[str, str]]) -> T:
        """Calls `work` on every rank. Returns its result if all ranks came, none found a mistake, and all agree.

        Otherwise the process ends on all ranks, and rank 0 prints one line. The status is 2 if `work` raised a
        UserError or the ranks differ in one of the `facts` (values by name), and EXIT_LOST if ranks did not come.
        """
        result, answer = None, {"host": self.hosts[0], "problem": "", "facts": {}}
        try:
            result = work()
            answer["facts"] = dict(facts(result))
        except UserError as error:
            answer["problem"] = str(error)
        status, line, hosts = self._decide(answer) if self.rank == 0 else self._await_verdict(answer)
        if status:
            if self.rank == 0:
                print(f"error: {line}", file=sys.stderr, flush=True)
            self.leave()
            sys.exit(status)
        self.hosts = hosts
        return result  # type: ignore[return-value]

    def leave(self) -> None:
        """Ends a rank's part before its process ends without training. Rank 0 waits until the others have left."""
        if self._store is None:
            return
        if self._store.add("left", 1) < self.world_size and self.rank == 0:
            deadline = time.monotonic() + _LEAVE_SECONDS
            while self._store.add("left", 0) < self.world_size and time.monotonic() < deadline:
                time.sleep(0.05)

    def tell(self, name: str, value: str) -> None:
        """Stores a value for the other ranks; called on rank 0."""
        if self._store is not None:
            self._store.set(name, value)

    def ask(self, name: str) -> str:
        """The value that rank 0 stores under this name; waits for it."""
        assert self._store is not None
        return str(self._store.get(name).decode())

    def serve(self) -> tuple[socket.socket, str]:
        """Opens a server that the other ranks `connect` to, and returns it with the token that they send.

        Called on rank 0. The token proves that a connection comes from a rank.
        """
        on_one_host = os.environ["MASTER_ADDR"] in LOOPBACK
        dual = not on_one_host and socket.has_dualstack_ipv6()
        address, family = ("127.0.0.1" if on_one_host else "", 0), socket.AF_INET6 if dual else socket.AF_INET
        server = socket.create_server(address, family=family, dualstack_ipv6=dual, backlog=self.world_size)
        token = secrets.token_hex(16)
        self.tell("server", json.dumps([server.getsockname()[1], token]))
        return server, token

    def connect(self) -> tuple[socket.socket, str]:
        """Connects to rank 0's server; returns the connection and the token to send.

        UserError: it cannot connect. Only this rank knows it.
        """
        port, token = json.loads(self.ask("server"))
        address = os.environ["MASTER_ADDR"]
        try:
            peer = socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
        except OSError as error:
            reason = f"cannot connect to port {port} of {address} ({one_line(error)})"
            raise UserError(f"{reason}; {PORTS_ADVICE}") from error
        peer.settimeout(None)
        return peer, token

    def _open(self) -> Any:
        from torch.distributed import DistNetworkError, DistStoreError, PrefixStore, TCPStore

        address, port = os.environ["MASTER_ADDR"], whole_number("MASTER_PORT", low=1, high=65535)
        serves = self.rank == 0 and not elastic.shares_store()
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
                sys.exit(EXIT_LOST if elastic.max_restarts() else EXIT_MISTAKE)
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

    def _decide(self, own: dict[str, Any]) -> tuple[int, str, list[str]]:
        """Rank 0's part: waits for the other ranks' reports and tells them the verdict: status, line and hosts."""
        answers, missing = [own], []
        deadline = time.monotonic() + self._seconds
        for rank in range(1, self.world_size):
            answer = self._answer(rank, deadline)
            if answer is None:
                missing.append(rank)
            else:
                answers.append(answer)
        problem = _first_problem(answers)
        status = EXIT_LOST if missing else EXIT_MISTAKE if problem else 0
        line = _absence(missing, self.world_size, self._seconds, answers) if missing else problem
        verdict = status, line, [answer["host"] for answer in answers]
        self.tell("verdict", json.dumps(verdict))
        return verdict

    def _answer(self, rank: int, deadline: float) -> dict[str, Any] | None:
        """The report of a rank; None if it does not come before `deadline`."""
        assert self._store is not None
        name = f"answer/{rank}"
        while not self._store.check([name]):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)
        answer: dict[str, Any] = json.loads(self._store.get(name))
        return answer

    def _await_verdict(self, own: dict[str, Any]) -> tuple[int, str, list[str]]:
        """The other ranks' part: report to rank 0 and wait for status, line and hosts."""
        assert self._store is not None
        self._store.set(f"answer/{self.rank}", json.dumps(own))
        self._store.set_timeout(timedelta(seconds=2 * self._seconds))  # rank 0 itself waits `seconds` for the others
        try:
            status, line, hosts = json.loads(self.ask("verdict"))
        except RuntimeError as error:  # torch's store has lost its server
            reason = str(error).partition("\n")[0]
            print(f"error: lost rank 0 before the start ({reason}); see its host's output", file=sys.stderr)
            sys.exit(EXIT_LOST)
        return status, line, hosts


def _first_problem(answers: list[dict[str, Any]]) -> str:
    """The mistake of the lowest rank that found one, else the first fact that differs from rank 0's, else ""."""
    first = answers[0]
    if first["problem"]:
        return str(first["problem"])
    for rank, answer in enumerate(answers):
        where = f"rank {rank} on host {answer['host']}"
        if answer["problem"]:
            return f"{where}: {answer['problem']}"
        for name, value in first["facts"].items():
            # A rank that finds its run finished has looked at nothing else.
            if (found := answer["facts"].get(name, "not known")) != value:
                return (
                    f"{where}: {name} is {found}, and {value} on host {first['host']}; all hosts must "
                    "see the same files: `python -m pipeline.preflight` shows the difference"
                )
    return ""


def _absence(missing: list[int], world_size: int, seconds: float, answers: list[dict[str, Any]]) -> str:
    """One line that names the missing ranks and the hosts of the others."""
    ranks = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    hosts = sorted({answer["host"] for answer in answers})
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
