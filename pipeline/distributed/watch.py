"""Notices a rank or host that is lost, and a rank that hangs; names it and ends the job.

Each rank has a thread that writes into the store of the rendezvous, twice a second, what the rank is doing
(`pipeline.distributed.progress`). Rank 0 reads what all others write, and they read what rank 0 writes. The key "end"
says why the job ends; whoever sets it first decides. A rank sets it

- when a rank is lost: its process on the same host has ended, nothing has been heard of it for `host_timeout`, or the
  store does not answer. So a rank may compute, compile, save or evaluate for any time;
- when it leaves by an exception;
- when ranks hang, by what all ranks write. Each rank then writes its stacks to RUN/hangs/.

Without this the ranks would wait in a collective until its timeout. Time during which a thread itself does not run, as
after Ctrl-Z, does not count. A call of torch's store waits without end for a server that is stopped or cut off, so a
second thread watches the first.
"""

import contextlib
import faulthandler
import json
import os
import select
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from common.errors import UserError, one_line
from pipeline.distributed import launcher, progress
from pipeline.distributed.exits import EXIT_LOST, EXIT_MISTAKE, ExitNotice, exit_notice
from pipeline.distributed.progress import Report
from pipeline.distributed.rendezvous import Rendezvous, wait_for_keys

ADVICE = "the same command continues from the last checkpoint, on the remaining hosts as well"
TICK = 0.5
_VERDICT_SECONDS = 3.0  # for the cause of an exception, which may be that another rank is lost or leaves
_WRITE_SECONDS = 10.0  # for RUN/hangs/, which may be on the disk that does not answer
_BROKEN = ("gloo", "NCCL", "Connection", "Broken pipe")  # in the message of a collective that another rank has left
_SHOWN = 8
_STARTS = Report("start", 0, 0, 0, float("inf"))


class State(Enum):
    """What another rank is."""

    PRESENT = "present"
    LEFT = "left"  # it has left its watch, and said so
    ENDED = "ended"  # its process, on this host, has ended without that
    SILENT = "silent"  # nothing has been heard of it for its limit


@dataclass
class _Other:
    state: State = State.PRESENT
    beat: bytes = b""
    silent: float = 0.0
    report: Report = _STARTS


class Watch:
    """Watches this rank inside its `with` block, which every rank enters and leaves.

    If a rank is lost or hangs, the processes of all ranks end with EXIT_LOST. If a rank leaves the block by an
    exception, they end with status 1, or 2 for a UserError. A line names rank, host and reason.

    Args:
        rendezvous: of ranks that have agreed.
        host_timeout: seconds without a sign of life after which a rank is lost.
        hang_timeout: seconds without progress after which a rank hangs, at least; 0: no rank hangs.
    """

    def __init__(self, rendezvous: Rendezvous, output: Path, host_timeout: float, hang_timeout: float) -> None:
        self._rank, self._hosts, self._siblings = rendezvous.rank, rendezvous.hosts, rendezvous.siblings
        self._hangs, self._host_timeout, self._hang_timeout = output.absolute() / "hangs", host_timeout, hang_timeout
        self._store, self._several, self._join_seconds = rendezvous.store, len(self._hosts) > 1, rendezvous.seconds
        self._others = {rank: _Other() for rank in (range(1, len(self._hosts)) if self._rank == 0 else [0])}
        self._notes, self._idle, self._rounds = -1, 0.0, 0
        self._has_left = threading.Event()
        self._processes: dict[int, int] = {}  # rank by descriptor, of this host's other ranks
        self._ended = select.poll()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._run, self._mind_the_store)]

    def __enter__(self) -> None:
        own = progress.get_progress()
        own.hang_timeout = self._hang_timeout
        own.start_run()
        for rank, number in self._siblings.items():
            with contextlib.suppress(OSError):  # it has ended: nothing is heard of it
                self._processes[descriptor := os.pidfd_open(number)] = rank
                self._ended.register(descriptor, select.POLLIN)
        if self._several or self._hang_timeout:
            for thread in self._threads:
                thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        notice = exit_notice(self._name_of(self._rank), error)
        has_failed = self._several and isinstance(error, Exception) and not isinstance(error, UserError)
        if has_failed:
            self._wait_for_cause(error)
            traceback.print_exception(error)  # before another rank ends: the launcher then ends this process as well
        if self._rank == 0 and error is None:  # the store ends with this process
            while any(other.state is State.PRESENT for other in self._others.values()):
                time.sleep(TICK / 10)
        self._has_left.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(self._host_timeout)
        with contextlib.suppress(RuntimeError):  # rank 0 has ended
            if self._several and notice.status:
                self._store.compare_set("end", "", json.dumps(notice))
            self._say_farewell()
        for descriptor in self._processes:
            os.close(descriptor)
        if has_failed:
            raise SystemExit(notice.status) from None

    def _wait_for_cause(self, error: BaseException | None) -> None:
        """Waits while the first thread may find out that another rank is the cause; it then ends the process.

        A lost rank is found after a number of looks. On a busy machine they take longer than their ticks.
        """
        if isinstance(error, RuntimeError):
            by_another = any(word in str(error) for word in _BROKEN)
            last = self._rounds + (_VERDICT_SECONDS + (self._host_timeout if by_another else 0.0)) / TICK
            while self._rounds < last:  # the second thread ends the process if there are no more looks
                time.sleep(TICK)

    def _run(self) -> None:
        """The first thread. Whatever fails here ends the process, so that no hang goes unnoticed."""
        try:
            while not self._has_left.wait(TICK):
                self._look()
        except BaseException as error:
            line = f"the watch of {self._name_of(self._rank)} failed ({one_line(repr(error))}); {ADVICE}"
            if type(error).__name__.startswith("Dist"):  # of torch's store, whose server has ended
                line = self._loss([0], State.ENDED)
            self._end_rank(ExitNotice(EXIT_LOST, line), with_store=False)

    def _mind_the_store(self) -> None:
        """The second thread: ends the rank if the first one waits for the store too long."""
        silent, rounds = 0.0, 0
        while not self._has_left.wait(TICK):
            silent, rounds = silent + TICK if self._rounds == rounds else 0.0, self._rounds
            if silent > self._limit(progress.get_progress().phase):
                self._end_rank(ExitNotice(EXIT_LOST, self._loss([0], State.SILENT, silent)), with_store=False)

    def _look(self) -> None:
        """Writes what this rank does, takes what the others have written, and ends the job if one is lost or hangs."""
        own = progress.get_progress()
        self._idle = self._idle + TICK if own.notes == self._notes else 0.0
        self._notes = own.notes
        report = own.report(self._idle)
        if self._several:
            self._look_at_processes()
            self._store.set(f"beat/{self._rank}", json.dumps([self._rounds, *report]))
            self._hear()
        self._rounds += 1
        if silent := {rank: other.silent for rank, other in self._others.items() if other.state is State.SILENT}:
            self._end_job(ExitNotice(EXIT_LOST, self._loss(list(silent), State.SILENT, next(iter(silent.values())))))
        present = {rank: other.report for rank, other in self._others.items() if other.state is State.PRESENT}
        reports = {self._rank: report} | (present if self._several else {})
        if self._rank == 0 and self._hang_timeout and (ranks := progress.find_hanging(reports)):
            place = self._hangs / f"{time.strftime('%Y%m%d-%H%M%S')}-step-{reports[ranks[0]].step}"
            line = progress.describe_hanging(ranks, reports, self._hosts)
            line = f"{line}; the stacks are in {place}; {ADVICE}"
            self._end_job(ExitNotice(EXIT_LOST, line, 0.0, str(place)))

    def _look_at_processes(self) -> None:
        """Ends the job if a process of this host has ended without having left. That of rank 0 leaves last."""
        ended = [self._processes[descriptor] for descriptor, _ in self._ended.poll(0)]
        if 0 in ended:  # and with it the store
            self._end_rank(ExitNotice(EXIT_LOST, self._loss([0], State.ENDED)), with_store=False)
        if lost := [rank for rank in ended if self._store.get(f"beat/{rank}") != State.LEFT.value.encode()]:
            self._end_job(ExitNotice(EXIT_LOST, self._loss(lost, State.ENDED)))

    def _hear(self) -> None:
        present = {rank: other for rank, other in self._others.items() if other.state is State.PRESENT}
        end, *beats = self._store.multi_get(["end", *(f"beat/{rank}" for rank in present)])
        if end and not self._has_left.wait((notice := ExitNotice(*json.loads(end))).grace):
            self._end_rank(notice)
        for other, beat in zip(present.values(), beats):
            other.silent, other.beat = other.silent + TICK if beat == other.beat else 0.0, beat
            if beat == State.LEFT.value.encode():
                other.state = State.LEFT
            elif beat:
                other.report = Report(*json.loads(beat)[1:])
            if other.state is State.PRESENT and other.silent > self._limit(other.report.phase):
                other.state = State.SILENT

    def _limit(self, phase: str) -> float:
        """Seconds of silence until a rank is lost. Before training it loads libraries, which holds Python's lock.

        The first steps may be over before a busy machine has written that a rank has left its start.
        """
        is_loading = phase == "start" and not progress.get_progress().has_made_a_step
        return max(self._host_timeout, self._join_seconds) if is_loading else self._host_timeout

    def _loss(self, ranks: Sequence[int], state: State, seconds: float = 0.0) -> str:
        names = ", ".join(map(self._name_of, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
        reason = "its process ended without notice"
        if state is State.SILENT:
            reason = f"no sign of life for {seconds:.0f} s: its host or its link is down, or the process is stopped or "
            reason += "holds Python's lock"
        return f"lost {names}: {reason}; {ADVICE}"

    def _name_of(self, rank: int) -> str:
        return f"rank {rank} on host {UserError(self._hosts[rank])}"

    def _end_job(self, notice: ExitNotice) -> NoReturn:
        """Ends all ranks by this notice, or by an earlier one."""
        if self._several:
            notice = ExitNotice(*json.loads(self._store.compare_set("end", "", json.dumps(notice))))
        self._end_rank(notice)

    def _end_rank(self, notice: ExitNotice, with_store: bool = True) -> NoReturn:
        """Prints why the job ends, once a host, writes the stacks, and ends this process.

        with_store: False if the store does not answer.
        """
        speaks = os.environ.get("LOCAL_RANK", "0") == "0" or (self._rank == 1 and 0 in self._siblings)
        with contextlib.suppress(RuntimeError):
            if with_store and self._several:
                speaks = self._store.add(f"said/{self._hosts[self._rank]}", 1) == 1
        if speaks:
            launcher.write_now(2, f"error: {notice.line}\n")
        if notice.stacks:
            writer = threading.Thread(target=self._write_stacks, args=(Path(notice.stacks),), daemon=True)
            writer.start()
            writer.join(_WRITE_SECONDS)
        if notice.status == EXIT_MISTAKE:
            launcher.end_agent()
        with contextlib.suppress(RuntimeError):
            if with_store:
                self._say_farewell()
        os._exit(notice.status)

    def _say_farewell(self) -> None:
        """Says that this rank has left. Rank 0, whose process serves the store, lets the others read the end first."""
        if self._several:
            self._store.add(f"left/{self._rank}", 1)  # which waits for the answer
            self._store.set(f"beat/{self._rank}", State.LEFT.value)
            if self._rank == 0:
                staying = [rank for rank, other in self._others.items() if other.state is not State.LEFT]
                wait_for_keys(self._store, [f"left/{rank}" for rank in staying], _VERDICT_SECONDS)

    def _write_stacks(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"rank-{self._rank:05d}.txt").open("w", encoding="utf-8") as file:
            print(self._name_of(self._rank), progress.get_progress().report(self._idle), file=file, flush=True)
            faulthandler.dump_traceback(file, all_threads=True)
