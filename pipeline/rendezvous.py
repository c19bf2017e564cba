"""The ranks meet before there is a process group, so that a rank that never comes has a name.

On the address and port that DeepSpeed hands out (MASTER_ADDR, MASTER_PORT) rank 0 opens torch's key-value store; the
process groups join the same store later. Each rank says where it runs, what it found wrong and on what it must agree
with rank 0; rank 0 decides for all.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from data_prep.errors import UserError

T = TypeVar("T")

EXIT_LOST = 69  # EX_UNAVAILABLE of sysexits.h: a rank is gone, or never came
JOIN_SECONDS = 300.0  # imports from a cold network disk take minutes
_LEAVE_SECONDS = 5.0  # for the others to read the verdict, before rank 0 leaves and the store with it


class Meeting:
    """The ranks of a job, as they come. Every rank must call the same methods in the same order.

    Attributes:
        rank, world_size: as the launcher has put them into the environment.
        hosts: host name of each rank, once they have agreed.
    """

    def __init__(self, seconds: float = JOIN_SECONDS) -> None:
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.hosts = [socket.gethostname()]
        self._seconds = seconds
        self._store = self._open() if self.world_size > 1 else None

    def agree(self, work: Callable[[], T], facts: Callable[[T], Mapping[str, str]]) -> T:
        """Calls `work` on every rank and returns its result where all ranks are there, without a mistake, and agree.

        Else the process ends, on all ranks and with one line by rank 0: with status 2 where `work` raised a
        UserError or the ranks differ in one of the `facts`, by name; with EXIT_LOST where ranks did not come.
        """
        result, answer = None, {"host": self.hosts[0], "problem": "", "facts": {}}
        try:
            result = work()
            answer["facts"] = dict(facts(result))
        except UserError as error:
            answer["problem"] = str(error)
        status, line, hosts = self._decide(answer) if self.rank == 0 else self._hear(answer)
        if status:
            if self.rank == 0:
                print(f"error: {line}", file=sys.stderr, flush=True)
            self.leave()
            sys.exit(status)
        self.hosts = hosts
        return result  # type: ignore[return-value]

    def leave(self) -> None:
        """To be called before a process ends that has met the others, and does not train: rank 0 must leave last."""
        if self._store is None:
            return
        if self._store.add("left", 1) < self.world_size and self.rank == 0:
            deadline = time.monotonic() + _LEAVE_SECONDS
            while self._store.add("left", 0) < self.world_size and time.monotonic() < deadline:
                time.sleep(0.05)

    def tell(self, name: str, value: str) -> None:
        """Rank 0 tells the others something."""
        if self._store is not None:
            self._store.set(name, value)

    def ask(self, name: str) -> str:
        """What rank 0 tells under this name; waits for it."""
        assert self._store is not None
        return str(self._store.get(name).decode())

    def _open(self) -> Any:
        from torch.distributed import DistNetworkError, DistStoreError, PrefixStore, TCPStore

        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        try:
            store = TCPStore(
                address,
                port,
                is_master=self.rank == 0,
                timeout=timedelta(seconds=self._seconds),
                wait_for_workers=False,
                multi_tenant=True,  # the process groups' store is the same one
            )
        except (DistNetworkError, DistStoreError) as error:
            if self.rank == 0:
                print(
                    f"error: cannot listen on port {port} ({error}); another job may run on this host: "
                    "give another --master_port",
                    file=sys.stderr,
                )
                sys.exit(2)
            print(
                f"error: rank {self.rank} on host {self.hosts[0]} found nobody at {address}:{port} within "
                f"{self._seconds:.0f} s; see why rank 0 did not start, or `python -m pipeline.preflight`",
                file=sys.stderr,
            )
            sys.exit(EXIT_LOST)
        # A process may meet the others again for another run: what was said the last time is not to be heard then.
        return PrefixStore(f"meeting/{store.add(f'meetings/{self.rank}', 1)}", store)

    def _decide(self, own: dict[str, Any]) -> tuple[int, str, list[str]]:
        """Rank 0's part: waits for the answers of the others, and tells them the verdict: status, line and hosts."""
        answers, missing = [own], []
        deadline = time.monotonic() + self._seconds
        for rank in range(1, self.world_size):
            answer = self._answer(rank, deadline)
            if answer is None:
                missing.append(rank)
            else:
                answers.append(answer)
        problem = _first_problem(answers)
        status = EXIT_LOST if missing else 2 if problem else 0
        line = _absence(missing, self.world_size, self._seconds, answers) if missing else problem
        verdict = status, line, [answer["host"] for answer in answers]
        self.tell("verdict", json.dumps(verdict))
        return verdict

    def _answer(self, rank: int, deadline: float) -> dict[str, Any] | None:
        assert self._store is not None
        name = f"answer/{rank}"
        while not self._store.check([name]):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)
        answer: dict[str, Any] = json.loads(self._store.get(name))
        return answer

    def _hear(self, own: dict[str, Any]) -> tuple[int, str, list[str]]:
        assert self._store is not None
        self._store.set(f"answer/{self.rank}", json.dumps(own))
        self._store.set_timeout(timedelta(seconds=2 * self._seconds))  # rank 0 waits that long for the others
        try:
            status, line, hosts = json.loads(self.ask("verdict"))
        except RuntimeError as error:  # of torch's store, whose server is gone
            reason = str(error).partition("\n")[0]
            print(f"error: lost rank 0 before the start ({reason}); see its host's output", file=sys.stderr)
            sys.exit(EXIT_LOST)
        return status, line, hosts


def _first_problem(answers: list[dict[str, Any]]) -> str:
    """The mistake of the lowest rank that found one, or the first fact in which a rank differs from rank 0; or ""."""
    first = answers[0]
    if first["problem"]:
        return str(first["problem"])
    for rank, answer in enumerate(answers):
        where = f"rank {rank} on host {answer['host']}"
        if answer["problem"]:
            return f"{where}: {answer['problem']}"
        for name, value in first["facts"].items():
            if answer["facts"][name] != value:
                return (
                    f"{where}: {name} is {answer['facts'][name]}, and {value} on host {first['host']}; all hosts must "
                    "see the same files: `python -m pipeline.preflight` shows the difference"
                )
    return ""


def _absence(missing: list[int], world_size: int, seconds: float, answers: list[dict[str, Any]]) -> str:
    ranks = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    hosts = sorted({answer["host"] for answer in answers})
    return (
        f"{len(missing)} of {world_size} ranks did not come within {seconds:.0f} s "
        f"(rank{'s' if len(missing) > 1 else ''} {ranks}; the others came from host{'s' if len(hosts) > 1 else ''} "
        f"{', '.join(hosts)}); `python -m pipeline.preflight` tells what is wrong where"
    )
