"""Notices a rank or host that is lost, and a rank that hangs; names it and ends the job.

Each rank has a thread that is connected to rank 0's thread, the judge. The judge ends the job

- when a rank is lost: its connection ends without notice, or the kernel finds by keepalive probes that the host does
  not answer. So a rank may compute, compile, save or evaluate for any time;
- when a rank leaves by an exception;
- when ranks hang, by the reports of all ranks (`pipeline.distributed.progress`). Each rank then writes its stacks to
  RUN/hangs/.

The other ranks watch rank 0 in the same way. Without this they would wait in a collective until its timeout of ten
minutes. Time during which a thread itself does not run, as after Ctrl-Z, does not count. A rank that is stopped cannot
end itself: `pipeline.distributed.guard` does it.
"""

import faulthandler
import os
import selectors
import socket
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from common.errors import UserError, one_line
from pipeline.distributed import launcher, progress
from pipeline.distributed.channel import Channel
from pipeline.distributed.exits import EXIT_LOST, EXIT_MISTAKE, ExitNotice
from pipeline.distributed.launcher import write_now
from pipeline.distributed.progress import Report
from pipeline.distributed.rendezvous import PORTS_ADVICE

ADVICE = "the same command continues from the last checkpoint, on the remaining hosts as well"
_CONNECT_SECONDS = 60.0  # for all ranks to connect after the rendezvous
_HELLO_SECONDS = 10.0  # for a connection to prove that it comes from a rank
_MAX_STRANGERS = 64  # connections at once that have not proved it, beside one for each rank
_WRITE_SECONDS = 10.0  # for RUN/hangs/, which may be on the disk that does not answer
_REPORTS = 20  # in the time after which a rank hangs
_MAX_TICK = 1.0


class Watcher(threading.Thread):
    """The thread of a rank that is not rank 0: tells the judge what the rank does, and obeys it.

    Args:
        rank, hosts: of this process; the host name of each rank.
        hangs: the directory of stacks.
        hang_timeout, host_timeout: see `Watch`.
        channel: to the judge.
    Attributes:
        is_ready: set once all ranks are connected.
    """

    def __init__(
        self, rank: int, hosts: list[str], hangs: Path, hang_timeout: float, host_timeout: float,
        channel: Channel | None,
    ) -> None:  # fmt: skip
        super().__init__(name="watch", daemon=True)
        self.rank, self.hosts, self.hangs, self.channel = rank, hosts, hangs, channel
        self.hang_timeout, self.host_timeout = hang_timeout, host_timeout
        self.tick = min(_MAX_TICK, hang_timeout / _REPORTS) if hang_timeout else _MAX_TICK
        self.is_ready = threading.Event()
        self.selector = selectors.DefaultSelector()
        self._stop_reader, self._stop_writer = socket.socketpair()
        self.selector.register(self._stop_reader, selectors.EVENT_READ)
        if channel is not None:
            self.selector.register(channel.connection, selectors.EVENT_READ, channel)
        self._speaks = os.environ.get("LOCAL_RANK", "0") == "0"
        self._left: ExitNotice | None = None
        self._ending: ExitNotice | None = None
        self._ends_at = float("inf")
        self._notes, self._idle = -1, 0.0
        self._judge = Report("start", 0, 0, 0, float("inf"))

    def name_of(self, rank: int) -> str:
        """A rank and its host."""
        return f"rank {rank} on host {UserError(self.hosts[rank])}"

    def connections(self) -> list[int]:
        """The descriptors of its connections to other ranks, once it is ready."""
        assert self.channel is not None
        return [self.channel.connection.fileno()]

    def stop(self, notice: ExitNotice) -> None:
        """Leaves the watch and tells the other ranks why; called by the main thread."""
        self._stop_writer.send(b"\n")  # first: a thread that sees the notice closes the other end
        self._left = notice
        self.join()
        self._stop_writer.close()

    def run(self) -> None:
        """Watches until the rank leaves. Whatever fails here ends the process, so that no hang goes unnoticed."""
        try:
            self._watch()
            for key in list(self.selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self.selector.close()
        except BaseException as error:
            write_now(2, f"error: the watch of {self.name_of(self.rank)} failed ({one_line(repr(error))}); {ADVICE}\n")
            os._exit(EXIT_LOST)

    def _watch(self) -> None:
        last = due = time.monotonic()
        while self._left is None:
            for key, _ in self.selector.select(max(0.0, min(due, self._ends_at) - time.monotonic())):
                # What came before in this round may have closed it.
                if key.fileobj != self._stop_reader and key.fileobj.fileno() != -1:  # type: ignore[union-attr]
                    self.hear(key.data)
            now = time.monotonic()
            if now >= self._ends_at:
                self.end_rank()
            if now >= due:
                self.look(min(now - last, 3 * self.tick))
                last, due = now, now + self.tick
        self.leave(self._left)

    def leave(self, notice: ExitNotice) -> None:
        """Tells the judge how the rank leaves."""
        assert self.channel is not None
        self.channel.send("leave", notice=notice)

    def hear(self, channel: Any) -> None:
        """Does what the judge says."""
        try:
            for message in channel.receive():
                if message["kind"] == "greeting":
                    channel.send("hello", rank=self.rank)
                elif message["kind"] == "ready":
                    self.is_ready.set()
                elif message["kind"] == "report":
                    self._judge = Report(*message["report"])
                elif message["kind"] == "leave":
                    channel.has_left = True
                elif message["kind"] == "end":
                    self.end_after(ExitNotice(*message["notice"]))
        except (EOFError, OSError, ValueError) as error:
            self.selector.unregister(channel.connection)
            if not channel.has_left:
                self._end_without_judge(self.loss_by(0, error))

    def loss_of(self, rank: int, reason: str, advice: str = ADVICE) -> ExitNotice:
        """The notice that a rank is lost."""
        return ExitNotice(EXIT_LOST, f"lost {self.name_of(rank)}: {reason}; {advice}")

    def loss_by(self, rank: int, error: Exception) -> ExitNotice:
        """The notice that a rank is lost, by what its connection says."""
        if isinstance(error, EOFError | ConnectionResetError):
            return self.loss_of(rank, "its process ended without notice")
        if isinstance(error, OSError):
            return self.loss_of(rank, f"its host did not answer for {self.host_timeout:.0f} s ({one_line(error)})")
        return self.loss_of(rank, f"its connection carries something else ({one_line(error)})")

    def look(self, seconds: float) -> None:
        """Reports to the judge, `seconds` after the last time, and notices that the judge sends nothing."""
        if not self.hang_timeout or not self.is_ready.is_set():
            return
        assert self.channel is not None
        self.channel.send("report", report=self.report(seconds))
        self._judge = self.age(self._judge, seconds)
        if self._judge.silent > self._judge.limit and not self.channel.has_left:
            self._end_without_judge(self.hang([0], {0: self._judge}))

    def _end_without_judge(self, notice: ExitNotice) -> None:
        """Ends this rank because rank 0 is lost or hangs, and tells rank 0, which may be continued."""
        assert self.channel is not None
        self.channel.send("leave", notice=notice)
        self._speaks = self._speaks or self.rank == 1  # of rank 0's host nobody else may be left
        self.end_after(notice)

    def report(self, seconds: float) -> Report:
        """What this rank does, so many seconds after the last report."""
        own = progress.get_progress()
        self._idle = self._idle + seconds if own.notes == self._notes else 0.0
        self._notes = own.notes
        return own.report(self._idle)

    def age(self, report: Report, seconds: float) -> Report:
        """The last report of a rank, so many seconds later.

        A rank that sends nothing for `hang_timeout` does not run at all, whatever its phase is. Only before training
        may it load libraries for long, which holds Python's lock.
        """
        idle, silent = report.idle + seconds, report.silent + seconds
        stands = silent > self.hang_timeout and report.phase != "start"
        return report._replace(idle=idle, silent=silent, limit=self.hang_timeout if stands else report.limit)

    def hang(self, ranks: list[int], reports: dict[int, Report]) -> ExitNotice:
        """The notice that these ranks hang."""
        directory = self.hangs / f"{time.strftime('%Y%m%d-%H%M%S')}-step-{reports[ranks[0]].step}"
        line = progress.describe_hanging(ranks, reports, self.hosts)
        return ExitNotice(EXIT_LOST, f"{line}; the stacks are in {directory}; {ADVICE}", 0.0, str(directory))

    def end_after(self, notice: ExitNotice) -> None:
        """Ends this rank after the grace of the first notice."""
        if self._ending is None:
            self._ending, self._ends_at = notice, time.monotonic() + notice.grace

    def end_rank(self) -> NoReturn:
        """Prints why the job ends, once a host, and ends this process."""
        assert self._ending is not None
        if self._speaks:
            write_now(2, f"error: {self._ending.line}\n")
        if self._ending.stacks:
            writer = threading.Thread(target=self._write_stacks, args=(Path(self._ending.stacks),), daemon=True)
            writer.start()
            writer.join(_WRITE_SECONDS)
        if self._ending.status == EXIT_MISTAKE:
            launcher.end_agent()
        os._exit(self._ending.status)

    def _write_stacks(self, directory: Path) -> None:
        """Writes what this rank does and the stacks of its threads."""
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"rank-{self.rank:05d}.txt").open("w", encoding="utf-8") as file:
            print(self.name_of(self.rank), self.report(0.0), file=file, flush=True)
            faulthandler.dump_traceback(file, all_threads=True)


class Judge(Watcher):
    """The thread of rank 0, which hears all others.

    Args:
        server: to which the other ranks connect, and the key of their channels; None if there is one rank.
    """

    def __init__(
        self, hosts: list[str], hangs: Path, hang_timeout: float, host_timeout: float,
        server: tuple[socket.socket, bytes] | None,
    ) -> None:  # fmt: skip
        super().__init__(0, hosts, hangs, hang_timeout, host_timeout, None)
        self._absent = set(range(1, len(hosts)))  # ranks that have not connected
        self._connect_in = _CONNECT_SECONDS
        self._strangers: dict[Channel, float] = {}  # and the seconds that each has left
        self._channels: dict[int, Channel] = {}
        self._reports: dict[int, Report] = {}
        if server is None:
            self.is_ready.set()
        else:
            self._server, self._key = server
            self._server.setblocking(False)
            self.selector.register(self._server, selectors.EVENT_READ)

    def connections(self) -> list[int]:
        """See `Watcher.connections`."""
        return [channel.connection.fileno() for channel in self._channels.values()]

    def leave(self, notice: ExitNotice) -> None:
        """Ends the others' ranks as well if rank 0 fails."""
        for channel in self._channels.values():
            if notice.status:
                channel.send("end", notice=notice)
            else:
                channel.send("leave")

    def hear(self, channel: Channel | None) -> None:
        """Accepts a connection, or takes what a rank says."""
        if channel is None:
            self._accept()
            return
        try:
            for message in channel.receive():
                if message["kind"] == "hello":
                    self._admit(channel, message["rank"])
                elif channel.rank is None:
                    continue  # the greeting
                elif message["kind"] == "report":
                    self._reports[channel.rank] = Report(*message["report"])
                elif message["kind"] == "leave":
                    channel.has_left = True
                    self._forget(channel.rank)
                    if (notice := ExitNotice(*message["notice"])).status:
                        self.end_after(notice)
        except (EOFError, OSError, ValueError) as error:
            self._drop(channel)
            if channel.rank is not None and not channel.has_left:
                self._forget(channel.rank)
                self.end_after(self.loss_by(channel.rank, error))

    def _accept(self) -> None:
        """Takes a connection, and drops the oldest stranger if there are too many."""
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        if len(self._strangers) > _MAX_STRANGERS + len(self.hosts):
            self._drop(next(iter(self._strangers)))
        stranger = Channel(connection, self._key, is_server=True, host_timeout=self.host_timeout)
        self._strangers[stranger] = _HELLO_SECONDS
        self.selector.register(connection, selectors.EVENT_READ, stranger)

    def _admit(self, stranger: Channel, rank: int) -> None:
        """Takes a connection that has sent a signed message for that of a rank. The last one closes the server."""
        if rank not in self._absent:
            raise ValueError("this rank is connected already")
        self._absent.remove(rank)
        del self._strangers[stranger]
        self._channels[rank], stranger.rank = stranger, rank
        if not self._absent:
            for other in list(self._strangers):
                self._drop(other)
            self.selector.unregister(self._server)
            self._server.close()
            for channel in self._channels.values():
                channel.send("ready")
            self.is_ready.set()

    def _drop(self, channel: Channel) -> None:
        """Closes a connection."""
        self._strangers.pop(channel, None)
        self.selector.unregister(channel.connection)
        channel.connection.close()

    def _forget(self, rank: int) -> None:
        self._channels.pop(rank, None)
        self._reports.pop(rank, None)

    def look(self, seconds: float) -> None:
        """Judges after so many seconds."""
        for stranger in list(self._strangers):
            self._strangers[stranger] -= seconds
            if self._strangers[stranger] <= 0:
                self._drop(stranger)
        if self._absent:
            self._connect_in -= seconds
            if self._connect_in <= 0:
                self.end_after(self.loss_of(min(self._absent), "it never connected", PORTS_ADVICE))
            return
        if not self.hang_timeout or self._ending is not None:
            return
        own = self.report(seconds)
        for rank, channel in self._channels.items():
            channel.send("report", report=own)
            if rank in self._reports:
                self._reports[rank] = self.age(self._reports[rank], seconds)
        reports = {0: own, **self._reports}
        if set(self._channels) == set(self._reports) and (ranks := progress.find_hanging(reports)):
            self.end_after(self.hang(ranks, reports))

    def end_after(self, notice: ExitNotice) -> None:
        """Ends the ranks of all hosts."""
        for channel in list(self._channels.values()):
            channel.send("end", notice=notice)
        super().end_after(notice)
