"""Kills a rank that cannot end itself: it is stopped (SIGSTOP), or holds Python's lock for ever.

`start_guard` runs this file as a small process beside the rank. The rank's watch writes to its stdin again and again
how many seconds may pass until the next time. Time in which the guard itself is stopped, as by Ctrl-Z, does not count.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

MORE_SECONDS = 5
"""A rank that is silent for so much longer is killed: the others must have named it by then."""


def start_guard() -> "subprocess.Popen[bytes]":
    """Starts the guard of this process. It ends with the process, or when its stdin is closed."""
    return subprocess.Popen([sys.executable, "-ISs", __file__, str(os.getpid())], stdin=subprocess.PIPE)


def main() -> None:
    """Guards the process that the first word names, until stdin is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the rank obeys them
    with contextlib.suppress(OSError):  # the rank has ended, or the kernel is older than 5.3
        rank = os.pidfd_open(int(sys.argv[1]))
        left = 600
        while left > 0:
            ready, _, _ = select.select([0, rank], [], [], 1.0)
            if rank in ready or (ready and not (said := os.read(0, 4096))):
                return
            left = int(said.split()[-1]) + MORE_SECONDS if ready else left - 1
        signal.pidfd_send_signal(rank, signal.SIGKILL)


if __name__ == "__main__":
    main()
