"""The process beside each rank. `pipeline.distributed.hangs.watch` starts it.

A watcher reports the progress of its rank. Rank 0's watcher receives all reports and judges them. When ranks hang, it
collects the stacks of all ranks, writes them to RUN/hangs/, prints which ranks hang, and lets all watchers end their
ranks. Only the standard library is imported, so that a watcher is small and starts at once.

Time during which a watcher itself does not run, as after Ctrl-Z, does not count.
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
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from common.files import atomic
from pipeline.distributed import output, terminal
from pipeline.distributed.connections import send
from pipeline.distributed.hangs import progress, stacks, verdict
from pipeline.distributed.hangs.verdict import Report

END = "end"
"""The line that a watcher writes to its rank."""
ADVICE = "the same command continues from the last checkpoint, without this host as well"
_STACKS_SECONDS = 3.0
_ANSWER_SECONDS = 6.0  # for the other watchers to send their stacks
_WRITE_SECONDS = 10.0  # for RUN/hangs/, which may be on the disk that does not answer
_VERDICT_SECONDS = 2 * _ANSWER_SECONDS + _WRITE_SECONDS + 15.0  # from the stacks of a rank to its end
_KILL_SECONDS = 5.0  # for the rank to end by itself, and for its launcher to see the status of the others first


@dataclass(frozen=True)
class Task:
    """What a watcher is told.

    Attributes:
        rank, pid: of the watched process.
        progress, stacks: descriptors of its memory.
        peer: descriptor of the connection to rank 0's watcher; None on rank 0.
        server: descriptor of the server of rank 0's watcher; None on other ranks, and if there is one rank.
        token: proves that a connection comes from a watcher.
        hosts: host name of each rank.
        output: the directory of the run.
        tick: seconds between two reports.
    """

    rank: int
    pid: int
    progress: int
    stacks: int
    peer: int | None
    server: int | None
    token: str
    hosts: list[str]
    output: str
    tick: float

    def to_json(self) -> str:
        """For the command line of the watcher."""
        return json.dumps(asdict(self))


class Channel:
    """A connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""

    def messages(self) -> Iterator[dict[str, Any]]:
        """The complete lines that have come. Raises EOFError if the other end is closed."""
        part = self.connection.recv(1 << 16)
        if not part:
            raise EOFError
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            yield json.loads(line)


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
    """Watches one rank and obeys rank 0's watcher."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin, selectors.EVENT_READ, "rank")
        self._memory = mmap.mmap(task.progress, 0)
        self._record = progress.Record(0, "start", 0, 0, 0, float("inf"))
        self._idle = 0.0
        self._parent = os.getppid()
        self._verdict_in = math.inf  # seconds until a stopped rank is ended without a verdict
        if task.peer is not None:
            self._judge = Channel(socket.socket(fileno=task.peer))
            self._judge.connection.settimeout(_ANSWER_SECONDS)  # a host that is gone takes nothing
            send(self._judge.connection, {"token": task.token, "rank": task.rank})
            self.selector.register(self._judge.connection, selectors.EVENT_READ, self._judge)

    def run(self) -> None:
        """Watches until the rank ends or has left its watch."""
        watch = Stopwatch(self.task.tick)
        due = time.monotonic()
        while os.getppid() == self._parent:
            for key, _ in self.selector.select(max(0.0, due - time.monotonic())):
                if key.data == "rank":
                    return  # it has left its watch, or has ended
                self.hear(key.data)
            if time.monotonic() >= due:
                due = time.monotonic() + self.task.tick
                seconds = watch.step()
                self.tick(seconds)
                self._verdict_in -= seconds
                if self._verdict_in <= 0:
                    self.end_without_judge()

    def hear(self, channel: Channel) -> None:
        """Does what rank 0's watcher says."""
        try:
            for message in channel.messages():
                if message["kind"] == "collect":
                    self._verdict_in = _VERDICT_SECONDS
                    send(channel.connection, {"kind": "stacks", "text": self.own_stacks()})
                elif message["kind"] == END:
                    self.end_rank()
        except (EOFError, OSError):
            self.selector.unregister(channel.connection)
            if self._verdict_in < math.inf:
                self.end_without_judge()

    def tick(self, seconds: float) -> None:
        """Reports to rank 0's watcher after so many seconds."""
        with contextlib.suppress(OSError):  # it has ended
            send(self._judge.connection, {"kind": "report", "report": self.report(seconds)})

    def report(self, seconds: float) -> Report:
        """What the rank does, so many seconds after the last report."""
        self._idle += seconds
        record = progress.read(self._memory)
        if record is not None and record.number != self._record.number:
            self._record, self._idle = record, 0.0
        return Report(*self._record[1:], self._idle, stacks.state(self.task.pid))

    def own_stacks(self) -> str:
        """The stacks of the rank, which is stopped afterwards: it must not go on before it is ended."""
        text = stacks.collect(self.task.pid, self.task.stacks, _STACKS_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.task.pid, signal.SIGSTOP)
        return text

    def end_without_judge(self) -> None:
        """Ends a stopped rank because rank 0's watcher is lost. The first of these ranks on each host prints a line.

        Rank 0 itself, if its host lives, stays stopped until its launcher ends it.
        """
        hosts, own = self.task.hosts, self.task.rank
        if hosts.index(hosts[own], 1) == own:
            line = f"error: lost rank 0 on host {hosts[0]} while it judged which ranks hang; {ADVICE}\n"
            output.write(sys.stderr.fileno(), line)
        self.end_rank()

    def end_rank(self) -> NoReturn:
        """Ends the rank and this process."""
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), f"{END}\n".encode())
            os.kill(self.task.pid, signal.SIGCONT)
        deadline = time.monotonic() + _KILL_SECONDS
        while os.getppid() == self._parent and time.monotonic() < deadline:
            time.sleep(0.05)
        if os.getppid() == self._parent:
            os.kill(self.task.pid, signal.SIGKILL)
        sys.exit()


class Judge(Watcher):
    """Rank 0's watcher, which judges the reports of all ranks."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._expected = set(range(len(task.hosts)))  # ranks that have not left
        self._channels: dict[int, Channel] = {}
        self._reports: dict[int, Report] = {}
        self._silence: dict[int, float] = {}
        self._stacks: dict[int, str] = {}
        if task.server is not None:
            self._server = socket.socket(fileno=task.server)
            self.selector.register(self._server, selectors.EVENT_READ, "server")

    def hear(self, channel: Any) -> None:
        """Accepts a watcher, or takes what one says."""
        if channel == "server":
            connection, _ = self._server.accept()
            self.selector.register(connection, selectors.EVENT_READ, Channel(connection))
            return
        rank = next((rank for rank, known in self._channels.items() if known is channel), None)
        try:
            for message in channel.messages():
                if rank is None:
                    rank = self._admit(channel, message)
                elif message["kind"] == "report":
                    self._reports[rank], self._silence[rank] = Report(*message["report"]), 0.0
                elif message["kind"] == "stacks":
                    self._stacks[rank] = message["text"]
        except (EOFError, OSError, ValueError, LookupError, TypeError):
            self.selector.unregister(channel.connection)
            channel.connection.close()
            if rank is not None:  # the rank has ended or has left its watch
                self._expected.discard(rank)
                self._channels.pop(rank, None)
                self._reports.pop(rank, None)

    def _admit(self, channel: Channel, hello: dict[str, Any]) -> int:
        """The rank of a connection. Raises ValueError if it is none of a watcher."""
        rank = int(hello["rank"])
        if not secrets.compare_digest(str(hello["token"]), self.task.token) or rank not in self._expected:
            raise ValueError
        self._channels[rank] = channel
        return rank

    def tick(self, seconds: float) -> None:
        """Judges after so many seconds."""
        self._reports[0], self._silence[0] = self.report(seconds), 0.0
        for rank in self._reports:
            self._silence[rank] += seconds if rank else 0.0
        if self._expected != set(self._reports):
            return
        reports = {
            rank: report._replace(idle=report.idle + max(0.0, self._silence[rank] - 2 * self.task.tick))
            for rank, report in self._reports.items()
        }
        if ranks := verdict.hanging(reports):
            self._conclude(ranks, reports)

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
        if _write_in_time(directory, texts):
            lines.append(f"error: the stacks of all ranks are in {directory}; {ADVICE}")
        else:
            lines.append(f"error: {directory} cannot be written, so the stacks follow; {ADVICE}")
            lines += [texts[rank] for rank in ranks]
        output.write(sys.stderr.fileno(), "".join(f"{line}\n" for line in lines))
        for channel in self._channels.values():
            with contextlib.suppress(OSError):
                send(channel.connection, {"kind": END})
        self.end_rank()

    def _collect(self, ranks: set[int]) -> None:
        """Receives the stacks of these ranks, as far as their watchers answer."""
        for rank in ranks & set(self._channels):
            with contextlib.suppress(OSError):
                send(self._channels[rank].connection, {"kind": "collect"})
        if 0 in ranks:
            self._stacks[0] = self.own_stacks()
        deadline = time.monotonic() + _ANSWER_SECONDS
        while ranks & set(self._channels) - set(self._stacks) and time.monotonic() < deadline:
            for key, _ in self.selector.select(0.1):
                if key.data == "rank":
                    return
                self.hear(key.data)


def _write_in_time(directory: Path, texts: dict[int, str]) -> bool:
    """Writes a file for each rank. Returns whether that succeeded before the disk took too long."""
    written = threading.Event()

    def write() -> None:
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            for rank, text in texts.items():
                atomic.write_text(directory / f"rank-{rank:05d}.txt", text)
            written.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(_WRITE_SECONDS)
    return written.is_set()


def _continue(rank: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(rank, signal.SIGCONT)


def _give_terminal_back(rank: int) -> None:
    """Gives the terminal back to the job for a rank that has been killed."""
    with contextlib.suppress(OSError):  # there is no terminal
        terminal.give_back(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC), rank, os.getpgrp())


def main() -> None:
    """Watches the rank of the command line."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, stacks.SIGNAL):
        signal.signal(number, signal.SIG_IGN)  # the rank obeys them, and the watcher ends with its rank
    task = Task(**json.loads(sys.argv[1]))
    # After Ctrl-Z a shell continues its job, to which the watcher belongs and a rank in the foreground does not.
    signal.signal(signal.SIGCONT, lambda *_: _continue(task.pid))
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    watcher = Judge(task) if task.rank == 0 else Watcher(task)
    try:
        watcher.run()
    finally:
        _give_terminal_back(task.pid)
    sys.stdout.close()
    os._exit(0)  # a thread that writes to a dead disk would be waited for


if __name__ == "__main__":
    main()
