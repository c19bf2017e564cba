"""Notices a rank or host that is lost, and a rank that hangs; names it and ends the job.

Each rank has a thread, which is connected to rank 0's thread. Two kinds of messages travel, in both directions:

    report  what the rank is doing (`pipeline.distributed.progress`)
    leave   how the rank leaves the watch: status 0, or why it ends, and so all ranks end

Rank 0 ends the job

- when a rank is lost: its connection ends without notice, or the kernel finds by keepalive probes that the host does
  not answer. So a rank may compute, compile, save or evaluate for any time;
- when a rank leaves by an exception;
- when ranks hang, by the reports of all ranks. Each rank then writes its stacks to RUN/hangs/.

The other ranks watch rank 0 in the same way. Without this they would wait in a collective until its timeout of ten
minutes. Time during which a thread itself does not run, as after Ctrl-Z, does not count. A rank that is stopped cannot
end itself: `pipeline.distributed.guard` does it.
"""

import faulthandler
import os
import selectors
import subprocess
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from common.errors import UserError, one_line
from pipeline.distributed import launcher, progress
from pipeline.distributed.exits import EXIT_LOST, EXIT_MISTAKE, ExitNotice, exit_notice
from pipeline.distributed.guard import start_guard
from pipeline.distributed.launcher import write_now
from pipeline.distributed.progress import Report
from pipeline.distributed.rendezvous import Rendezvous

ADVICE = "the same command continues from the last checkpoint, on the remaining hosts as well"
_VERDICT_SECONDS = 3.0  # for the cause of a broken collective: usually another rank is lost or leaves
_WRITE_SECONDS = 10.0  # for RUN/hangs/, which may be on the disk that does not answer
_REPORTS = 20  # in the time after which a rank hangs
_MAX_TICK = 1.0


class Watch:
    """Watches this rank inside its `with` block, which every rank enters and leaves.

    If a rank is lost or hangs, the processes of all ranks end with EXIT_LOST. If a rank leaves the block by an
    exception, they end with status 1, or 2 for a UserError. A line names rank, host and reason. After a hang,
    RUN/hangs/ has the stacks of all ranks that can still write them.

    Args:
        rendezvous: of ranks that have agreed.
        output: the directory of the run.
        host_timeout: seconds without an answer after which a host is lost, at least 3.
        hang_timeout: seconds without progress after which a rank hangs, at least; 0: no rank hangs.
    """

    def __init__(self, rendezvous: Rendezvous, output: Path, host_timeout: float, hang_timeout: float) -> None:
        self._rank, self._hosts = rendezvous.rank, rendezvous.hosts
        self._channels = rendezvous.channels  # by rank: on rank 0 to all others, else to rank 0
        self._reports = dict.fromkeys(self._channels, Report("start", 0, 0, 0, float("inf")))
        self._hangs, self._host_timeout, self._hang_timeout = output.absolute() / "hangs", host_timeout, hang_timeout
        self._is_needed = bool(self._channels or hang_timeout)
        self._speaks = os.environ.get("LOCAL_RANK", "0") == "0"
        self._notes, self._idle = -1, 0.0
        self._left: ExitNotice | None = None  # how the main thread leaves
        self._ending: ExitNotice | None = None  # why the job ends
        self._ends_at = float("inf")
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        own = progress.get_progress()
        own.hang_timeout = self._hang_timeout
        own.start_run()
        if not self._is_needed:
            return
        for channel in self._channels.values():
            channel.watch_host(self._host_timeout)
        if self._channels:
            self._guard = start_guard(channel.connection.fileno() for channel in self._channels.values())
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_needed:
            return
        several = len(self._hosts) > 1
        if several and isinstance(error, RuntimeError):
            time.sleep(_VERDICT_SECONDS)  # the thread may end the process meanwhile
        broken = several and isinstance(error, Exception) and not isinstance(error, UserError)
        if broken:  # printed first: as soon as another rank ends, the launcher ends this process as well
            traceback.print_exception(error)
        notice = exit_notice(self._name_of(self._rank), error)
        self._left = notice
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        if self._guard is not None:
            self._guard.communicate()
        if broken:
            raise SystemExit(notice.status) from None

    def _run(self) -> None:
        """The thread. Whatever fails here ends the process, so that no hang goes unnoticed."""
        try:
            with selectors.DefaultSelector() as selector:
                self._watch(selector)
            for channel in self._channels.values():
                channel.send("leave", notice=self._left)
                channel.connection.close()
        except BaseException as error:
            write_now(
                2, f"error: the watch of {self._name_of(self._rank)} failed ({one_line(repr(error))}); {ADVICE}\n"
            )
            os._exit(EXIT_LOST)

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """Hears the other ranks and looks at all until the main thread leaves."""
        selector.register(self._stop, selectors.EVENT_READ)
        for rank, channel in self._channels.items():
            selector.register(channel.connection, selectors.EVENT_READ, rank)
        tick = min(_MAX_TICK, self._hang_timeout / _REPORTS) if self._hang_timeout else _MAX_TICK
        last = due = time.monotonic()
        while self._left is None:
            for key, _ in selector.select(max(0.0, min(due, self._ends_at) - time.monotonic())):
                if key.data is not None and not self._hear(key.data):
                    selector.unregister(key.fileobj)
                    self._channels.pop(key.data).connection.close()
                    del self._reports[key.data]
            now = time.monotonic()
            if now >= self._ends_at:
                self._end_rank()
            if now >= due:
                self._look(min(now - last, 3 * tick))
                last, due = now, now + tick

    def _hear(self, rank: int) -> bool:
        """Takes a message of a rank. Returns False once it has left or is lost."""
        try:
            message = self._channels[rank].receive() or {"kind": ""}
        except (EOFError, OSError, ValueError) as error:
            self._end_job(self._loss_by(rank, error), speaks=self._rank == 1)  # nobody else may be left on its host
            return False
        if message["kind"] == "report":
            self._reports[rank] = Report(*message["report"])
        if message["kind"] == "leave" and (notice := ExitNotice(*message["notice"])).status:
            self._end_job(notice)
        return message["kind"] != "leave"

    def _look(self, seconds: float) -> None:
        """Reports to the others, and looks which ranks hang, `seconds` after the last time."""
        if not self._hang_timeout or self._ending is not None:
            return
        own = self._report(seconds)
        for rank, channel in self._channels.items():
            channel.send("report", report=own)
            self._reports[rank] = self._age(self._reports[rank], seconds)
        if self._rank == 0:
            reports = {0: own, **self._reports}
            ranks = progress.find_hanging(reports)
        else:  # of rank 0 it sees only whether it runs
            reports = self._reports
            ranks = [rank for rank, report in reports.items() if report.silent > report.limit]
        if ranks:
            directory = self._hangs / f"{time.strftime('%Y%m%d-%H%M%S')}-step-{reports[ranks[0]].step}"
            line = progress.describe_hanging(ranks, reports, self._hosts)
            line = f"{line}; the stacks are in {directory}; {ADVICE}"
            self._end_job(ExitNotice(EXIT_LOST, line, 0.0, str(directory)), speaks=self._rank == 1)

    def _report(self, seconds: float) -> Report:
        """What this rank does, so many seconds after the last report."""
        own = progress.get_progress()
        self._idle = self._idle + seconds if own.notes == self._notes else 0.0
        self._notes = own.notes
        return own.report(self._idle)

    def _age(self, report: Report, seconds: float) -> Report:
        """The last report of a rank, so many seconds later.

        A rank that sends nothing for `hang_timeout` does not run at all, whatever its phase is. Only before training
        may it load libraries for long, which holds Python's lock.
        """
        idle, silent = report.idle + seconds, report.silent + seconds
        stands = silent > self._hang_timeout and report.phase != "start"
        return report._replace(idle=idle, silent=silent, limit=self._hang_timeout if stands else report.limit)

    def _loss_by(self, rank: int, error: Exception) -> ExitNotice:
        """The notice that a rank is lost, by what its connection says."""
        reason = f"its connection carries something else ({one_line(error)})"
        if isinstance(error, EOFError | ConnectionResetError):
            reason = "its process ended without notice"
        elif isinstance(error, OSError):
            reason = f"its host did not answer for {self._host_timeout:.0f} s ({one_line(error)})"
        return ExitNotice(EXIT_LOST, f"lost {self._name_of(rank)}: {reason}; {ADVICE}")

    def _name_of(self, rank: int) -> str:
        """A rank and its host."""
        return f"rank {rank} on host {UserError(self._hosts[rank])}"

    def _end_job(self, notice: ExitNotice, speaks: bool = False) -> None:
        """Tells the others, and ends this rank after the grace of the first notice.

        Args:
            speaks: whether this rank prints the notice also if it is not the first one of its host.
        """
        if self._ending is not None:
            return
        self._ending, self._ends_at = notice, time.monotonic() + notice.grace
        self._speaks = self._speaks or speaks
        for channel in self._channels.values():
            channel.send("leave", notice=notice)

    def _end_rank(self) -> NoReturn:
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
        with (directory / f"rank-{self._rank:05d}.txt").open("w", encoding="utf-8") as file:
            print(self._name_of(self._rank), self._report(0.0), file=file, flush=True)
            faulthandler.dump_traceback(file, all_threads=True)
