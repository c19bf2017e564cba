"""Lets Ctrl-C in a terminal reach rank 0 alone, so that `deepspeed` waits for the clean end.

A terminal sends Ctrl-C to all processes of its foreground group. The `deepspeed` command would end at once with a
traceback, and its agent would kill the ranks after 30 s. So the first rank of the host makes a group of its own and
puts it into the foreground. The run then stops as after any signal, and `deepspeed` returns its status.

This is done only if a shell with job control started `deepspeed` as a job of its own. Such a shell takes the terminal
back when the job ends or stops. A script that starts `deepspeed` keeps its terminal: Ctrl-C must end the script, too.
"""

import contextlib
import os
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType

from pipeline.distributed import launcher_watch
from pipeline.distributed.launcher_watch import Process


def is_own_job(launchers: Sequence[Process], group: int) -> bool:
    """Whether a process group is the job of the `deepspeed` command among the `launchers` of a rank."""
    return any(launcher.pid == group and launcher_watch.is_deepspeed(launcher) for launcher in launchers)


def give_back(terminal: int, rank: int, group: int) -> None:
    """Puts `group` into the foreground again, if the group of a rank is there.

    Args:
        terminal: descriptor of the terminal.
        rank: the process number of the rank, which is that of its group.
    """
    with contextlib.suppress(OSError):
        if os.tcgetpgrp(terminal) == rank:
            os.tcsetpgrp(terminal, group)


class Foreground:
    """Keeps this rank in the foreground of its terminal inside the `with` block, where that is possible.

    Ctrl-Z stops the whole job. The rank's watcher continues the rank when the shell continues the job.

    Args:
        is_watched: whether the rank has a watcher.
    """

    def __init__(self, is_watched: bool) -> None:
        self._is_wanted = is_watched and os.environ.get("LOCAL_RANK") == "0"
        self._terminal: int | None = None

    def __enter__(self) -> None:
        self._group = os.getpgrp()
        if not self._is_wanted or not is_own_job(launcher_watch.launchers(launcher_watch.ancestors()), self._group):
            return
        with contextlib.suppress(OSError):  # there is no terminal
            terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
            if os.tcgetpgrp(terminal) == self._group:
                # A process in the background that changes the foreground is stopped by SIGTTOU.
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                signal.signal(signal.SIGTSTP, self._stop)
                os.setpgid(0, 0)
                os.tcsetpgrp(terminal, os.getpid())
                self._terminal = terminal

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            give_back(self._terminal, os.getpid(), self._group)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Stops the job and this rank on Ctrl-Z. Returns when both have been continued."""
        assert self._terminal is not None
        give_back(self._terminal, os.getpid(), self._group)
        os.killpg(self._group, signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGSTOP)
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._terminal) == self._group:  # by `fg`, not by `bg`
                os.tcsetpgrp(self._terminal, os.getpid())
