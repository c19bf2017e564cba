"""Ends a rank that cannot end itself: it is stopped (SIGSTOP), or holds Python's lock for ever.

`start_guard` runs this file as a small process beside the rank. It waits until the connections of the rank's watch have
been closed by the other ranks, so the job has ended. Then it continues the rank, which may have been stopped, and kills
it if it still does not end.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable

CONTINUE_SECONDS = 2.0
"""From the end of the others until the rank is continued."""
KILL_SECONDS = 12.0
"""From then until it is killed: a rank that is continued writes its stacks first, for at most 10 s."""


def start_guard(connections: Iterable[int]) -> "subprocess.Popen[bytes]":
    """Starts the guard of this process. It ends with the process, or when its stdin is closed.

    Args:
        connections: descriptors of sockets, one to each rank that this one is connected to.
    """
    descriptors = tuple(connections)
    words = [sys.executable, "-ISs", __file__, str(os.getpid()), *map(str, descriptors)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=descriptors)


def main() -> None:
    """Guards the process that the first word names, until stdin is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the rank obeys them
    rank, *connections = map(int, sys.argv[1:])
    ends = [0]
    with contextlib.suppress(OSError):  # the rank has ended, or the kernel is older than 5.3
        ends.append(os.pidfd_open(rank))  # stdin may have been inherited by children of the rank
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN | select.POLLHUP)
    for connection in connections:
        poll.register(connection, select.POLLRDHUP)
    while connections:
        for descriptor, _ in poll.poll():
            if descriptor in ends:
                return
            poll.unregister(descriptor)
            connections.remove(descriptor)
    for seconds, number in ((CONTINUE_SECONDS, signal.SIGCONT), (KILL_SECONDS, signal.SIGKILL)):
        if select.select(ends, [], [], seconds)[0]:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank, number)


if __name__ == "__main__":
    main()
