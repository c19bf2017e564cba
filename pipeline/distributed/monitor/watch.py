"""Starts the watcher of this rank, tells it how the rank leaves, and ends the rank when the watcher says so."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from common.errors import UserError
from pipeline.distributed import elastic
from pipeline.distributed.exits import EXIT_FAILED, EXIT_LOST, EXIT_MISTAKE, write_now
from pipeline.distributed.monitor import progress, stacks
from pipeline.distributed.monitor.watcher import ADVICE, END, READY, ExitNotice, Task
from pipeline.distributed.rendezvous import Rendezvous

_CONNECT_SECONDS = 60.0  # for the watchers to connect after the rendezvous
_OTHERS_SECONDS = 2.0  # for the other ranks to find the same mistake by themselves
_VERDICT_SECONDS = 3.0  # for the cause of a broken collective: usually another rank is lost or leaves
_REPORTS = 20  # in the time after which a rank hangs
_MAX_TICK = 1.0
_ROOT = Path(__file__).resolve().parents[3]


class Watch:
    """Watches this rank inside its `with` block, which every rank enters and leaves.

    If a rank is lost or hangs, the processes of all ranks end with EXIT_LOST. If a rank leaves the block by an
    exception, they end with status 1, or 2 for a UserError. A line names rank, host and reason. After a hang,
    RUN/hangs/ has the stacks of all ranks.

    Args:
        rendezvous: of ranks that have agreed.
        output: the directory of the run.
        host_timeout: seconds without an answer after which a host is lost, at least 3.
        hang_timeout: seconds without progress after which a rank hangs, at least; 0: no rank hangs.
    """

    def __init__(self, rendezvous: Rendezvous, output: Path, host_timeout: float, hang_timeout: float) -> None:
        self._rendezvous, self._output = rendezvous, output
        self._host_timeout, self._hang_timeout = host_timeout, hang_timeout
        self._has_left = False
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        own = progress.get_progress()
        own.hang_timeout = self._hang_timeout
        own.start_run()
        if self._rendezvous.world_size == 1 and not self._hang_timeout:
            return
        connection, token = self._connect()
        self._stacks = stacks.register()
        task = Task(
            rank=self._rendezvous.rank,
            pid=os.getpid(),
            progress=own.descriptor,
            stacks=self._stacks,
            connection=None if connection is None else connection.fileno(),
            token=token,
            hosts=self._rendezvous.hosts,
            speaks=os.environ.get("LOCAL_RANK", "0") == "0",
            output=str(self._output.absolute()),
            connect_seconds=_CONNECT_SECONDS,
            host_timeout=self._host_timeout,
            finds_hangs=self._hang_timeout > 0,
            tick=min(_MAX_TICK, self._hang_timeout / _REPORTS) if self._hang_timeout else _MAX_TICK,
        )
        self._watcher = _start_watcher(task)
        if connection is not None:
            connection.close()
        self._take_order(self._watcher)  # once all watchers are connected
        threading.Thread(target=self._obey, args=(self._watcher, task.tick), name="watch", daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watcher is None:
            return
        several = self._rendezvous.world_size > 1
        if several and isinstance(error, RuntimeError):
            time.sleep(_VERDICT_SECONDS)  # the watcher may end the process meanwhile
        notice = _exit_notice(self._name(), error)
        broken = several and isinstance(error, Exception) and not isinstance(error, UserError)
        if broken:  # printed first: as soon as another rank ends, the launcher ends this process as well
            traceback.print_exception(error)
        self._has_left = True
        _send(self._watcher, notice)
        self._watcher.wait()
        stacks.unregister(self._stacks)
        if broken:
            raise SystemExit(notice.status) from None

    def _name(self) -> str:
        return f"rank {self._rendezvous.rank} on host {self._rendezvous.hosts[self._rendezvous.rank]}"

    def _connect(self) -> tuple[socket.socket | None, str]:
        """Rank 0's server or a connection to it, and the token of the connections; None if there is one rank."""
        if self._rendezvous.world_size == 1:
            return None, ""
        if self._rendezvous.rank == 0:
            return self._rendezvous.serve()
        try:
            return self._rendezvous.connect()
        except UserError as error:
            write_now(sys.stderr.fileno(), f"error: {self._name()} {error}\n")
            os._exit(EXIT_LOST)

    def _obey(self, watcher: "subprocess.Popen[bytes]", tick: float) -> None:
        """The thread: counts this rank's collectives until the watcher ends the rank."""
        own, lines = progress.get_progress(), watcher.stdout
        assert lines is not None
        while not select.select([lines], [], [], tick)[0]:
            own.count_collectives()
        self._take_order(watcher)

    def _take_order(self, watcher: "subprocess.Popen[bytes]") -> None:
        """Waits for a line of the watcher: READY, or END with the status with which this process ends."""
        assert watcher.stdout is not None
        word, _, status = watcher.stdout.readline().decode().strip().partition(" ")
        if word == END:
            if int(status) == EXIT_MISTAKE:
                elastic.end_agent()
            os._exit(int(status))
        if word != READY and not self._has_left:
            write_now(sys.stderr.fileno(), f"error: the watcher of {self._name()} has ended; {ADVICE}\n")
            os._exit(EXIT_LOST)


def _start_watcher(task: Task) -> "subprocess.Popen[bytes]":
    searched = os.environ.get("PYTHONPATH")
    if _ROOT.name not in ("site-packages", "dist-packages"):  # a checkout, and perhaps another directory
        searched = os.pathsep.join(filter(None, (str(_ROOT), searched)))
    descriptors = (task.progress, task.stacks, task.connection)
    watcher = subprocess.Popen(
        [sys.executable, "-m", "pipeline.distributed.monitor.watcher"],
        env={**os.environ, **({"PYTHONPATH": searched} if searched else {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[descriptor for descriptor in descriptors if descriptor is not None],
    )
    _send(watcher, asdict(task))  # not in the command line, which every user of the host can read
    return watcher


def _send(watcher: "subprocess.Popen[bytes]", value: object) -> None:
    """Writes a line of JSON to the watcher, if it has not ended."""
    assert watcher.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        watcher.stdin.write(json.dumps(value).encode() + b"\n")
        watcher.stdin.flush()


def _exit_notice(name: str, error: BaseException | None) -> ExitNotice:
    """The notice of a rank that leaves, by the exception that makes it leave."""
    if error is None:
        return ExitNotice(0, "", 0.0)
    if isinstance(error, UserError):
        return ExitNotice(EXIT_MISTAKE, f"{name}: {error}", _OTHERS_SECONDS)
    if isinstance(error, KeyboardInterrupt):
        return ExitNotice(128 + signal.SIGINT, f"{name} was interrupted", 0.0)
    reason = str(error).strip().partition("\n")[0]
    return ExitNotice(EXIT_FAILED, f"{name} failed: {type(error).__name__}: {reason}", 0.0)
