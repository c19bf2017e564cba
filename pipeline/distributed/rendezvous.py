"""Rendezvous before init_process_group, so that missing ranks can be named.

    each rank, into torch's store: its host, mistake and facts -> rank 0, into the store: its verdict

The store is at the address and port that the launcher sets (MASTER_ADDR, MASTER_PORT). Rank 0 serves it, or torchrun's
agent; the process groups and `pipeline.distributed.watch` use the same one later.
"""

import contextlib
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from common.environment import launched_rank, launched_size, whole_number
from common.errors import UserError, one_line
from pipeline.distributed import launcher
from pipeline.distributed.exits import EXIT_LOST, EXIT_MISTAKE

T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "localhost")  # values of MASTER_ADDR with which all ranks are on this host
JOIN_SECONDS = 300
"""How long rank 0 waits for the other ranks, and one second longer for each rank: imports from a cold network disk take
minutes. The environment variable `JOIN_VARIABLE` sets another time."""
JOIN_VARIABLE = "ALBERT_JOIN_SECONDS"
RESOLVE_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_POLL_SECONDS = 0.05
_HEAR_SECONDS = 3.0  # for the other ranks to read the last word of the rank that serves the store


@dataclass(frozen=True)
class Answer:
    """What a rank reports: its host, its mistake or "", the facts that it found, by name, and its process.

    `process` is its number, and where this number holds: the start of the host, and the namespace.
    """

    rank: int
    host: str
    process: tuple[int, str] = (0, "")
    problem: str = ""
    facts: dict[str, str] = field(default_factory=dict)


def find_rank() -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT unless a launcher has set them.

    `deepspeed --launcher openmpi` does not set them. The ranks then find each other through MPI, and meet on port 29500
    of rank 0's host. A process without a launcher is the only rank. Raises UserError: see `launcher.check_agent`.
    """
    if "RANK" not in os.environ and launched_size() > 1:
        launched_rank()
        from deepspeed.comm import mpi_discovery

        mpi_discovery(verbose=False)
    elif "RANK" not in os.environ:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    launcher.check_agent()
    if os.environ.get("WORLD_SIZE") == "1" and not launcher.agent_serves_store():
        # A rank alone meets nobody, so the launcher's port may be taken by another run.
        os.environ |= {"MASTER_ADDR": LOOPBACK[0], "MASTER_PORT": str(reserve_port())}


def wait_for_keys(store: Any, keys: Sequence[str], seconds: float) -> None:
    """Waits until a store has all `keys`, for at most so many seconds. torch's own `wait` prints when they are over."""
    deadline = time.monotonic() + seconds
    while keys and not store.check(keys) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


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
            if time.monotonic() >= deadline or isinstance(error, ValueError) or not address:
                raise UserError(
                    f"the environment variable MASTER_ADDR is {address[:80]!r}, and host {socket.gethostname()} cannot "
                    f"resolve it ({one_line(error)}); name rank 0's host, or give its IP address"
                ) from None
        time.sleep(_RETRY_SECONDS)


class Rendezvous:
    """Where the ranks of a job meet. Every rank must call the same methods in the same order.

    Attributes:
        seconds: how long rank 0 waits for the other ranks; `JOIN_SECONDS` by default.
        store: of this job; None for a rank alone.
        hosts: host name of each rank, after `agree`.
        siblings: numbers of the processes of the other ranks on this host, by rank, after `agree`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.world_size = whole_number("WORLD_SIZE", low=1)
        self.rank, _ = (whole_number(name, high=self.world_size - 1) for name in ("RANK", "LOCAL_RANK"))
        self._address = os.environ.get("MASTER_ADDR", "")
        check_address(self._address)
        if self._address in LOOPBACK or os.environ.get("LOCAL_WORLD_SIZE") == str(self.world_size):
            # All ranks are on this host, and gloo and NCCL would listen on the address of its name.
            for library in ("GLOO", "NCCL"):
                os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
        self.hosts = [socket.gethostname()]
        self.siblings: dict[int, int] = {}
        self.store: Any = None
        usual = whole_number(JOIN_VARIABLE, low=1, default=JOIN_SECONDS + self.world_size)
        self.seconds = usual if seconds is None else seconds
        if self.world_size > 1:
            from torch.distributed import PrefixStore

            store = self._open_store()
            # The same processes may meet again for another run.
            self.store = PrefixStore(f"job/{store.add(f'jobs/{self.rank}', 1)}", store)

    def agree(self, work: Callable[[], T], facts: Callable[[T], Mapping[str, str]]) -> T:
        """Calls `work` on every rank. Returns its result if all ranks came, none found a mistake, and all agree.

        Otherwise the process ends on all ranks, and rank 0 prints one line. The status is 2 if `work` raised a
        UserError or the ranks differ in one of the `facts` (values by name), and EXIT_LOST if ranks did not come.
        """
        result, problem, found = None, "", {}
        try:
            result = work()
            found = dict(facts(result))
        except UserError as error:
            problem = str(error)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")
        process = os.getpid(), boot + os.readlink("/proc/self/ns/pid")
        own = Answer(self.rank, self.hosts[0], process, problem, found)
        status, self.hosts, processes = self._decide(own) if self.rank == 0 else self._await_verdict(own)
        self.siblings = {
            rank: number for rank, (number, place) in enumerate(processes) if place == process[1] and rank != self.rank
        }
        if status:
            sys.exit(status)
        if self.world_size == 1:  # the process group finds this store; torch's own would listen on all addresses
            self._own_store = self._open_store()
        return result  # type: ignore[return-value]

    def _decide(self, own: Answer) -> Any:
        """Rank 0's part: hears the other ranks and tells them the verdict: exit status, 0 to go on, and the ranks."""
        names = [f"answer/{rank}" for rank in range(1, self.world_size)]
        wait_for_keys(self.store, names, self.seconds)
        came = [name for name in names if self.store.check([name])]
        answers = [own, *(Answer(**json.loads(answer)) for answer in (self.store.multi_get(came) if came else ()))]
        missing = sorted({*range(self.world_size)} - {answer.rank for answer in answers})
        line = _absence(missing, self.world_size, self.seconds, answers) if missing else _first_problem(answers)
        if line:  # before the others end: the launcher then ends this process as well
            print(f"error: {UserError(line)}", file=sys.stderr, flush=True)
        status = EXIT_LOST if missing else EXIT_MISTAKE if line else 0
        verdict = status, [answer.host for answer in answers], [answer.process for answer in answers]
        if self.store is not None:
            for key in ("end", *(f"beat/{rank}" for rank in range(self.world_size))):
                self.store.set(key, "")  # for the watch: to read a key that is not there would wait for it
            self.store.set("verdict", json.dumps(verdict))
            # The store ends with this process.
            wait_for_keys(self.store, [name.replace("answer", "heard") for name in came], _HEAR_SECONDS)
        return verdict

    def _await_verdict(self, own: Answer) -> Any:
        try:
            self.store.set(f"answer/{self.rank}", json.dumps(asdict(own)))
            self.store.wait(["verdict"], timedelta(seconds=2 * self.seconds))  # rank 0 itself waits `seconds`
            verdict = json.loads(self.store.get("verdict"))
            self.store.set(f"heard/{self.rank}", "")
        except RuntimeError as error:  # of torch's store
            self._end_lost(f"lost rank 0 before the start ({one_line(error)[:80]}); see its host's output")
        return verdict

    def _end_lost(self, reason: str) -> NoReturn:
        print(f"error: rank {self.rank} on host {self.hosts[0]} {reason}", file=sys.stderr, flush=True)
        sys.exit(EXIT_LOST)

    def _open_store(self) -> Any:
        from torch.distributed import DistNetworkError, DistStoreError, TCPStore

        address, port = self._address, whole_number("MASTER_PORT", low=1, high=65535)
        serves, listener = self.rank == 0 and not launcher.agent_serves_store(), None
        if serves and address in LOOPBACK:  # torch itself would listen on all addresses
            with contextlib.suppress(OSError):  # a store of this process, which torch finds, or another program's
                listener = socket.create_server((LOOPBACK[0], port), backlog=self.world_size).detach()
        try:
            return TCPStore(
                address,
                port,
                is_master=serves,
                timeout=timedelta(seconds=self.seconds),
                wait_for_workers=False,
                multi_tenant=True,  # the process groups' store is the same one
                master_listen_fd=listener,
            )
        except (DistNetworkError, DistStoreError) as error:
            if not serves:
                self._end_lost(
                    f"found no rank 0 at {address}:{port} within {self.seconds:.0f} s; see why rank 0 did not start, "
                    "or `python -m pipeline.preflight`"
                )
            print(
                f"error: cannot listen on port {port} ({one_line(error)}); another job may run on this host: "
                "give the launcher another --master_port, before the module",
                file=sys.stderr,
            )
            # The agent chooses another port when it starts the ranks again.
            sys.exit(EXIT_LOST if launcher.max_restarts() else EXIT_MISTAKE)


def _first_problem(answers: Sequence[Answer]) -> str:
    """Of the lowest rank that has one: its mistake, or a fact that differs from rank 0's. "" if there is none."""
    first = answers[0]
    for answer in answers:
        where = f"rank {answer.rank} on host {answer.host}"
        if answer.problem:
            is_everywhere = all(other.problem == answer.problem for other in answers)
            return answer.problem if is_everywhere else f"{where}: {answer.problem}"
        for name, value in first.facts.items():
            # Hosts whose files differ may have facts of other names.
            if (found := answer.facts.get(name, "not known")) != value:
                return (
                    f"{where}: {name} is {found}, and {value} on host {first.host}; all hosts must "
                    "see the same files: `python -m pipeline.preflight` shows the difference"
                )
    return ""


def _absence(missing: Sequence[int], world_size: int, seconds: float, answers: Sequence[Answer]) -> str:
    ranks = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    hosts = ", ".join(sorted({answer.host for answer in answers}))
    return (
        f"{len(missing)} of {world_size} ranks did not come within {seconds:.0f} s: {ranks}; the others came from "
        f"{hosts}; `python -m pipeline.preflight` shows what is wrong on which host"
    )


def raise_file_limit() -> None:
    """Lets this process open as many files as the hard limit allows: the store's server holds several for each rank."""
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
