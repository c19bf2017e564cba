"""Makes a process write its stacks, and reads what the kernel knows of it.

The handler is written in C (faulthandler). It needs no lock of the interpreter, so it also works in a process that
holds the lock forever. A stopped process writes its stacks as soon as it is continued.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import time
from pathlib import Path

SIGNAL = signal.SIGUSR2
_MAX_BYTES = 1 << 20
_SETTLED_SECONDS = 0.2


def register() -> int:
    """Installs the handler in this process. Returns the descriptor of the memory that it writes to."""
    descriptor = os.memfd_create("stacks")
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True)
    return descriptor


def unregister(descriptor: int) -> None:
    """Undoes `register`."""
    faulthandler.unregister(SIGNAL)
    os.close(descriptor)


def state(pid: int) -> str:
    """The letter of a process's state, such as S (sleeps) or T (stopped); "?" if it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    return text.rpartition(")")[2].split()[0]


def collect(pid: int, descriptor: int, seconds: float) -> str:
    """The stacks of the process `pid`, and what its threads wait for in the kernel. Continues a stopped process.

    Args:
        descriptor: from `register` in that process.
        seconds: how long to wait for the stacks.
    """
    kernel = _kernel(pid)
    before = os.fstat(descriptor).st_size
    with contextlib.suppress(OSError):
        _signal_main_thread(pid)
        os.kill(pid, signal.SIGCONT)
    deadline, size, since = time.monotonic() + seconds, before, time.monotonic()
    while time.monotonic() < deadline and (size == before or time.monotonic() - since < _SETTLED_SECONDS):
        time.sleep(0.05)
        if (found := os.fstat(descriptor).st_size) != size:
            size, since = found, time.monotonic()
    stacks = os.pread(descriptor, _MAX_BYTES, before).decode(errors="replace")
    return f"{stacks or 'the process has not written its stacks'}\n{kernel}"


def _signal_main_thread(pid: int) -> None:
    """Sends SIGNAL to the main thread of a process. Raises OSError if there is none.

    A stopped process that is continued would give the signal to any of its threads. That thread would then walk the
    frames of the main thread while this one runs on, and crash.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "tgkill"):  # glibc before 2.30
        os.kill(pid, SIGNAL)
    elif libc.tgkill(pid, pid, int(SIGNAL)) != 0:
        raise OSError(ctypes.get_errno(), f"no signal to process {pid}")


def _kernel(pid: int) -> str:
    """A line for each thread: its name, its state, and where it waits in the kernel."""
    lines = []
    with contextlib.suppress(OSError):
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
            lines.append(
                f"kernel: thread {thread.name} {_text(thread / 'comm')}, state {state(int(thread.name))}, "
                f"in {_text(thread / 'wchan') or 'unknown'}"
            )
    return "\n".join(lines) + "\n"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
