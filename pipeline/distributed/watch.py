"""Watches this rank while it trains: starts its watcher and its guard, and tells the other ranks how it leaves."""

import os
import subprocess
import time
import traceback
from pathlib import Path
from types import TracebackType

from common.errors import UserError
from pipeline.distributed import progress
from pipeline.distributed.exits import EXIT_LOST, exit_notice
from pipeline.distributed.guard import start_guard
from pipeline.distributed.launcher import write_now
from pipeline.distributed.rendezvous import Rendezvous
from pipeline.distributed.watcher import Judge, Watcher

_VERDICT_SECONDS = 3.0  # for the cause of a broken collective: usually another rank is lost or leaves


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
        self._rendezvous, self._output = rendezvous, output
        self._host_timeout, self._hang_timeout = host_timeout, hang_timeout
        self._watcher: Watcher | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        own = progress.get_progress()
        own.hang_timeout = self._hang_timeout
        own.start_run()
        met = self._rendezvous
        if met.world_size == 1 and not self._hang_timeout:
            return
        limits = self._output.absolute() / "hangs", self._hang_timeout, self._host_timeout
        if met.rank == 0:
            server = met.serve() if met.world_size > 1 else None
            self._watcher = Judge(met.hosts, *limits, server)
        else:
            try:
                channel = met.connect(self._host_timeout)
            except UserError as error:
                write_now(2, f"error: rank {met.rank} on host {met.hosts[met.rank]} {error}\n")
                os._exit(EXIT_LOST)
            self._watcher = Watcher(met.rank, met.hosts, *limits, channel)
        self._watcher.start()
        self._watcher.is_ready.wait()
        if met.world_size > 1:
            self._guard = start_guard(self._watcher.connections())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watcher is None:
            return
        several = self._rendezvous.world_size > 1
        if several and isinstance(error, RuntimeError):
            time.sleep(_VERDICT_SECONDS)  # the watcher may end the process meanwhile
        notice = exit_notice(self._watcher.name_of(self._rendezvous.rank), error)
        broken = several and isinstance(error, Exception) and not isinstance(error, UserError)
        if broken:  # printed first: as soon as another rank ends, the launcher ends this process as well
            traceback.print_exception(error)
        self._watcher.stop(notice)
        if self._guard is not None:
            self._guard.communicate()
        if broken:
            raise SystemExit(notice.status) from None
