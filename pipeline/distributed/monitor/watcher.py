"""The process beside each rank. `pipeline.distributed.monitor.watch` starts it.

A watcher tells rank 0's watcher, the judge, what its rank does. The judge ends the job

- when a rank is lost: its watcher's connection ends without notice, or the kernel finds by keepalive probes that the
  host does not answer. So a rank may compute, compile, save or evaluate for any time;
- when a rank leaves by an exception, which its watcher reports;
- when ranks hang, by the reports of all watchers. It collects the stacks of all ranks and writes them to RUN/hangs/.

Only the standard library is imported, so that a watcher is small and starts at once. Time during which a watcher itself
does not run, as after Ctrl-Z, does not count.
"""

import contextlib
import json
import math
import mmap
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pipeline.distributed.exits import EXIT_LOST, write_now
from pipeline.distributed.monitor import progress, stacks, verdict
from pipeline.distributed.monitor.channel import Channel
from pipeline.distributed.monitor.verdict import Report
from pipeline.distributed.rendezvous import PORTS_ADVICE

READY = "ready"
"""The word that a watcher writes to its rank once it is connected; the judge, once all are."""
END = "end"
"""The word that a watcher writes to its rank, before the status with which the rank ends."""
ADVICE = "the same command continues from the last checkpoint, on the remaining hosts as well"
_STACKS_SECONDS = 3.0
_ANSWER_SECONDS = 6.0  # for the other watchers to send their stacks, or to take a message
_KILL_SECONDS = 5.0  # for the rank to end by itself, and for its launcher to see the status of the others first


@dataclass(frozen=True)
class Task:
    """What a watcher is told, as the first line on its stdin.

    Attributes:
        rank, pid: of the watched process.
        progress, stacks: descriptors of its memory.
        connection: descriptor of rank 0's server on rank 0, of the connection to it elsewhere; None if there is one
            rank.
        token: proves that a connection comes from a watcher.
        hosts: host name of each rank.
        speaks: whether it prints why the job ends; one rank a host does.
        output: the directory of the run.
        connect_seconds: in which all watchers must have connected.
        host_timeout: seconds without an answer after which a host is lost.
        finds_hangs: whether ranks are ended that make no progress.
        tick: seconds between two reports.
    """

    rank: int
    pid: int
    progress: int
    stacks: int
    connection: int | None
    token: str
    hosts: list[str]
    speaks: bool
    output: str
    connect_seconds: float
    host_timeout: float
    finds_hangs: bool
    tick: float


class ExitNotice(NamedTuple):
    """Why a rank leaves, and how the others end.

    Attributes:
        status: 0 if the rank is done, else the status with which all ranks end.
        line: the error message that is printed once a host; "" if it has been printed.
        grace: seconds that the ranks have to end by themselves.
    """

    status: int
    line: str
    grace: float


class Stopwatch:
    """Measures time while this process runs.

    Args:
        tick: seconds between two calls of `step` when all is well.
    """

    def __init__(self, tick: float) -> None:
        self._tick, self._last = tick, time.monotonic()

    def step(self) -> float:
        """Seconds since the last call. If this process was stopped meanwhile, at most three ticks."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        return min(passed, 3 * self._tick)


class Watcher:
    """Watches one rank and obeys the judge."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin, selectors.EVENT_READ, "rank")
        self._memory = mmap.mmap(task.progress, 0)
        self._record = progress.Record(0, "start", 0, 0, 0, math.inf)
        self._idle = 0.0
        self._parent = os.getppid()
        self._said = b""  # by the rank, up to the end of a line
        self._ending: ExitNotice | None = None
        self._ends_at = math.inf
        self._connect()

    def _connect(self) -> None:
        """Shows the judge the token."""
        assert self.task.connection is not None
        self._judge = Channel(socket.socket(fileno=self.task.connection), self.task.host_timeout, 0)
        self._judge.send("hello", token=self.task.token, rank=self.task.rank)
        self.selector.register(self._judge.connection, selectors.EVENT_READ, self._judge)

    def run(self) -> None:
        """Watches until the rank has left its watch, or has ended."""
        watch = Stopwatch(self.task.tick)
        due = time.monotonic()
        while os.getppid() == self._parent:
            for key, _ in self.selector.select(max(0.0, min(due, self._ends_at) - time.monotonic())):
                if key.data != "rank":
                    self.hear(key.data)
                elif (notice := self._hear_rank()) is not None:
                    self.leave(notice)
                    return
            if time.monotonic() >= self._ends_at:
                self.end_rank()
            if time.monotonic() >= due:
                due = time.monotonic() + self.task.tick
                self.tick(watch.step())
        self.leave(self._loss())

    def _hear_rank(self) -> ExitNotice | None:
        """The notice of the rank when it leaves, or the notice of its loss; None before it has said all of it."""
        part = os.read(sys.stdin.fileno(), 1 << 16)
        self._said += part
        if self._said.endswith(b"\n"):
            return ExitNotice(*json.loads(self._said))
        return None if part else self._loss()

    def _loss(self) -> ExitNotice:
        return self.loss_of(self.task.rank, "its process ended without notice")

    def loss_of(self, rank: int, reason: str) -> ExitNotice:
        """The notice that a rank is lost."""
        return ExitNotice(EXIT_LOST, f"lost rank {rank} on host {self.task.hosts[rank]}: {reason}; {ADVICE}", 0.0)

    def loss_by(self, rank: int, error: Exception) -> ExitNotice:
        """The notice that a rank is lost, by what its connection says."""
        if isinstance(error, EOFError | ConnectionResetError):
            return self.loss_of(rank, "its process ended without notice")
        reason = f"its host did not answer for {self.task.host_timeout:.0f} s ({error})"
        return self.loss_of(rank, reason)

    def leave(self, notice: ExitNotice) -> None:
        """Tells the judge how the rank leaves."""
        self._judge.send("leave", notice=notice)

    def hear(self, channel: Any) -> None:
        """Does what the judge says."""
        try:
            for message in channel.messages():
                if message["kind"] == "collect":
                    channel.send("stacks", text=self.own_stacks())
                elif message["kind"] == READY:
                    self.tell_rank(READY)
                elif message["kind"] == "leave":
                    channel.has_left = True
                elif message["kind"] == END:
                    self.end_after(ExitNotice(*message["notice"]))
        except (EOFError, OSError) as error:
            self.selector.unregister(channel.connection)
            if not channel.has_left:
                # Nobody else of rank 0's host may be left to print it.
                self.end_after(self.loss_by(0, error), speaks=self.task.rank == 1)

    def tell_rank(self, order: str) -> None:
        """Writes a line to the rank, if it has not ended."""
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), f"{order}\n".encode())

    def tick(self, seconds: float) -> None:
        """Reports to the judge after so many seconds."""
        if self.task.finds_hangs:
            self._judge.send("report", report=self.report(seconds))

    def report(self, seconds: float) -> Report:
        """What the rank does, so many seconds after the last report."""
        self._idle += seconds
        record = progress.read(self._memory)
        if record is not None and record != self._record:
            self._record, self._idle = record, 0.0
        return Report(*self._record[1:], self._idle, stacks.state(self.task.pid))

    def own_stacks(self) -> str:
        """The stacks of the rank, which is stopped afterwards: it must not go on before it is ended."""
        text = stacks.collect(self.task.pid, self.task.stacks, _STACKS_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.task.pid, signal.SIGSTOP)
        return text

    def end_after(self, notice: ExitNotice, speaks: bool = False) -> None:
        """Prints why the job ends and ends the rank, after the grace of the first notice."""
        if self._ending is None:
            self._ending, self._ends_at = notice, time.monotonic() + notice.grace
            self._speaks = self.task.speaks or speaks

    def end_rank(self) -> NoReturn:
        """Ends the rank and this process."""
        assert self._ending is not None
        if self._ending.line and self._speaks:
            write_now(sys.stderr.fileno(), f"error: {self._ending.line}\n")
        self.tell_rank(f"{END} {self._ending.status}")
        with contextlib.suppress(OSError):
            os.kill(self.task.pid, signal.SIGCONT)
        deadline = time.monotonic() + _KILL_SECONDS
        while os.getppid() == self._parent and time.monotonic() < deadline:
            time.sleep(0.05)
        if os.getppid() == self._parent:
            os.kill(self.task.pid, signal.SIGKILL)
        sys.exit()


class Judge(Watcher):
    """Rank 0's watcher, which hears all others."""

    def _connect(self) -> None:
        """Lets the others connect."""
        self._absent = set(range(1, len(self.task.hosts)))  # ranks whose watchers have not connected
        self._connect_in = self.task.connect_seconds
        self._channels: dict[int, Channel] = {}
        self._reports: dict[int, Report] = {}
        self._silence: dict[int, float] = {}
        self._stacks: dict[int, str] = {}
        if self.task.connection is not None:
            self._server = socket.socket(fileno=self.task.connection)
            self.selector.register(self._server, selectors.EVENT_READ, "server")
        else:
            self.tell_rank(READY)

    def leave(self, notice: ExitNotice) -> None:
        """Ends the others' ranks as well if rank 0 fails."""
        if notice.status == EXIT_LOST and self.task.speaks:
            write_now(sys.stderr.fileno(), f"error: {notice.line}\n")
        for channel in self._channels.values():
            if notice.status:
                channel.send(END, notice=notice)
            else:
                channel.send("leave")

    def hear(self, channel: Any) -> None:
        """Accepts a watcher, or takes what one says."""
        if channel == "server":
            with contextlib.suppress(OSError):
                connection, _ = self._server.accept()
                connected = Channel(connection, self.task.host_timeout)
                self.selector.register(connection, selectors.EVENT_READ, connected)
            return
        try:
            for message in channel.messages():
                if channel.rank is None:
                    self._admit(channel, message)
                elif message["kind"] == "report":
                    self._reports[channel.rank], self._silence[channel.rank] = Report(*message["report"]), 0.0
                elif message["kind"] == "stacks":
                    self._stacks[channel.rank] = message["text"]
                elif message["kind"] == "leave":
                    channel.has_left = True
                    self._forget(channel.rank)
                    if (notice := ExitNotice(*message["notice"])).status:
                        self.end_job(notice)
        except (EOFError, OSError, ValueError, ArithmeticError, LookupError, TypeError) as error:
            self.selector.unregister(channel.connection)
            channel.connection.close()
            if channel.rank is not None and not channel.has_left:
                self._forget(channel.rank)
                self.end_job(self.loss_by(channel.rank, error))

    def _admit(self, channel: Channel, hello: dict[str, Any]) -> None:
        """Takes a connection for that of a rank. Raises ValueError or the like if it comes from somebody else."""
        rank = int(hello["rank"])
        if not secrets.compare_digest(str(hello["token"]).encode(), self.task.token.encode()):
            raise ValueError
        self._absent.remove(rank)
        self._channels[rank], channel.rank = channel, rank
        channel.send(READY)
        if not self._absent:
            self.tell_rank(READY)

    def _forget(self, rank: int) -> None:
        self._channels.pop(rank, None)
        self._reports.pop(rank, None)

    def tick(self, seconds: float) -> None:
        """Judges after so many seconds."""
        self._connect_in -= seconds
        if self._absent:
            if self._connect_in <= 0:
                notice = self.loss_of(min(self._absent), "it never connected")
                self.end_job(notice._replace(line=notice.line.replace(ADVICE, PORTS_ADVICE)))
            return
        if not self.task.finds_hangs or self._ending is not None:
            return
        self._reports[0], self._silence[0] = self.report(seconds), 0.0
        for rank in self._reports:
            self._silence[rank] += seconds if rank else 0.0
        if {0, *self._channels} != set(self._reports):
            return
        reports = {
            rank: report._replace(idle=report.idle + max(0.0, self._silence[rank] - 2 * self.task.tick))
            for rank, report in self._reports.items()
        }
        if ranks := verdict.hanging(reports):
            self._conclude(ranks, reports)

    def end_job(self, notice: ExitNotice) -> None:
        """Ends the ranks of all hosts."""
        for channel in self._channels.values():
            channel.send(END, notice=notice)
        self.end_after(notice)

    def _conclude(self, ranks: list[int], reports: dict[int, Report]) -> None:
        """Keeps all stacks, says which ranks hang, and ends the job."""
        lines = [f"error: {line}" for line in verdict.describe(ranks, reports, self.task.hosts)]
        self._collect(set(reports) - set(ranks))  # first: they must not go on when a stopped rank is continued
        self._collect(set(ranks))
        texts = {
            rank: f"{verdict.phase_line(rank, report, self.task.hosts)}\n\n{self._stacks.get(rank, 'no answer')}"
            for rank, report in sorted(reports.items())
        }
        directory = Path(self.task.output, "hangs", f"{time.strftime('%Y%m%d-%H%M%S')}-step-{reports[ranks[0]].step}")
        if stacks.write_in_time(directory, texts):
            lines.append(f"error: the stacks of all ranks are in {directory}; {ADVICE}")
        else:
            lines.append(f"error: {directory} cannot be written, so the stacks follow; {ADVICE}")
            lines += [texts[rank] for rank in ranks]
        write_now(sys.stderr.fileno(), "".join(f"{line}\n" for line in lines))
        self._ending = None  # of a rank that was lost meanwhile
        self.end_job(ExitNotice(EXIT_LOST, "", 0.0))

    def _collect(self, ranks: set[int]) -> None:
        """Receives the stacks of these ranks, as far as their watchers answer."""
        for rank in ranks & set(self._channels):
            self._channels[rank].send("collect")
        if 0 in ranks:
            self._stacks[0] = self.own_stacks()
        deadline = time.monotonic() + _ANSWER_SECONDS
        while ranks & set(self._channels) - set(self._stacks) and time.monotonic() < deadline:
            for key, _ in self.selector.select(0.1):
                if key.data == "rank":
                    return
                self.hear(key.data)


def main() -> None:
    """Watches the rank that the first line of stdin names."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, stacks.SIGNAL):
        signal.signal(number, signal.SIG_IGN)  # the rank obeys them, and the watcher ends with its rank
    line = b""
    while not line.endswith(b"\n"):  # byte by byte, so that what the rank says later stays in the pipe
        part = os.read(sys.stdin.fileno(), 1)
        if not part:
            return
        line += part
    task = Task(**json.loads(line))
    (Judge if task.rank == 0 else Watcher)(task).run()
    sys.stdout.close()
    os._exit(0)  # a thread that writes to a dead disk would be waited for


if __name__ == "__main__":
    main()
