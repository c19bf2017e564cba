"""Starts the watcher of this rank, and ends the rank when rank 0's watcher says so."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from pipeline.distributed import collectives
from pipeline.distributed.exits import EXIT_LOST
from pipeline.distributed.hangs import progress, stacks
from pipeline.distributed.hangs.watcher import END, Task
from pipeline.distributed.liveness import Liveness
from pipeline.distributed.rendezvous import Rendezvous

_QUIET_SECONDS = 0.5  # until every rank knows that the job ends, so that none reports the others as lost
_REPORTS = 20  # in the time after which a rank hangs
_MAX_TICK = 1.0
_ROOT = Path(__file__).resolve().parents[3]


class Watch:
    """Watches this rank inside its `with` block, which every rank enters and leaves.

    If a rank makes no progress for too long, the processes of all ranks end with EXIT_LOST, and RUN/hangs/ has their
    stacks.

    Args:
        rendezvous: of ranks that have agreed.
        seconds: without progress after which a rank hangs, at least; 0 turns the watch off.
        output: the directory of the run.
        liveness: of this rank.
    """

    def __init__(self, rendezvous: Rendezvous, seconds: float, output: Path, liveness: Liveness) -> None:
        self._rendezvous, self._seconds, self._output, self._liveness = rendezvous, seconds, output, liveness

    def __enter__(self) -> None:
        own = progress.of_this_process()
        own.hang_timeout = self._seconds
        own.begin()
        if not self._seconds:
            return
        collectives.note()
        self._stacks = stacks.register()
        peer, server, token = self._connect()
        task = Task(
            rank=self._rendezvous.rank,
            pid=os.getpid(),
            progress=own.descriptor,
            stacks=self._stacks,
            peer=None if peer is None else peer.fileno(),
            server=None if server is None else server.fileno(),
            token=token,
            hosts=self._rendezvous.hosts,
            output=str(self._output.absolute()),
            tick=min(_MAX_TICK, self._seconds / _REPORTS),
        )
        connection = peer or server
        descriptors = [own.descriptor, self._stacks, *([] if connection is None else [connection.fileno()])]
        searched = os.environ.get("PYTHONPATH")
        if _ROOT.name not in ("site-packages", "dist-packages"):  # a checkout, and perhaps another directory
            searched = os.pathsep.join(filter(None, (str(_ROOT), searched)))
        self._watcher = subprocess.Popen(
            [sys.executable, "-m", "pipeline.distributed.hangs.watcher", task.to_json()],
            env={**os.environ, **({"PYTHONPATH": searched} if searched else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
        )
        if connection is not None:
            connection.close()
        assert self._watcher.stdout is not None
        threading.Thread(target=self._obey, args=(self._watcher.stdout,), name="hangs", daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._seconds:
            return
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watcher.stdin.write(b"left\n")  # closing does not suffice: a forked child may hold the pipe as well
            self._watcher.stdin.close()
        self._watcher.wait()
        stacks.unregister(self._stacks)

    def _connect(self) -> tuple[socket.socket | None, socket.socket | None, str]:
        """The connection to rank 0's watcher, or rank 0's server, and the token of the connections."""
        if self._rendezvous.world_size == 1:
            return None, None, ""
        if self._rendezvous.rank == 0:
            server, token = self._rendezvous.serve("hangs")
            return None, server, token
        peer, token = self._rendezvous.connect("hangs")
        return peer, None, token

    def _obey(self, lines: IO[bytes]) -> None:
        """The thread: sleeps until the watcher ends the rank."""
        with contextlib.suppress(ValueError, OSError):  # the watch has been left
            if lines.readline().decode().strip() == END:
                self._liveness.expect_the_end()
                time.sleep(_QUIET_SECONDS)
                os._exit(EXIT_LOST)
