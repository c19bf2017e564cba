"""Makes a process write its stacks, and reads what the kernel knows of it.

The handler is written in C (faulthandler). It needs no lock of the interpreter, so it also works in a process that
holds the lock forever. A stopped process writes its stacks as soon as it is continued.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.files import atomic

SIGNAL = signal.SIGUSR2
_WRITE_SECONDS = 10.0  # for RUN/hangs/, which may be on the disk that does not answer
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


class Process(NamedTuple):
    """A process: its number, that of its parent, its name, its command line, and its state.

    The state is a letter such as S (sleeps) or T (stopped).
    """

    pid: int
    parent: int
    name: str
    words: Sequence[str]
    state: str = "S"


def read_process(pid: int) -> Process | None:
    """What /proc says of a process or a thread; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    name, _, rest = status.partition("(")[2].rpartition(")")
    state, parent, *_ = rest.split()
    return Process(pid, int(parent), name, line.split("\0"), state)


def state(pid: int) -> str:
    """The letter of a process's state; "?" if it cannot be read."""
    process = read_process(pid)
    return "?" if process is None else process.state


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
            if (found := read_process(int(thread.name))) is not None:
                place = (thread / "wchan").read_text(encoding="utf-8", errors="replace").strip()
                lines.append(f"kernel: thread {found.pid} {found.name}, state {found.state}, in {place or 'unknown'}")
    return "\n".join(lines) + "\n"


def write_in_time(directory: Path, texts: dict[int, str]) -> bool:
    """Writes a file with the stacks of each rank. Returns whether that succeeded before the disk took too long."""
    written = threading.Event()

    def write() -> None:
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            for rank, text in texts.items():
                atomic.write_text(directory / f"rank-{rank:05d}.txt", text)
            written.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(_WRITE_SECONDS)
    return written.is_set()
