"""Locks that keep two commands from writing to one output at the same moment.

A lock is a file with the host and the number of the process that holds it. The lock itself is an flock: the kernel
releases it when the process ends, however it ends, so a file that stays behind locks nothing.
"""

import contextlib
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.files.places import cannot_write

LOCK = ".lock"
"""The name of the lock inside a directory that a command works in."""
WAIT_SECONDS = 60.0
"""How long a command waits for another that only moves its finished files into place."""
_LINE = re.compile(r"(?:(\S+) (\d{1,10})\n)?")
"""All that a lock's file holds: host and process; nothing before its holder has written them."""
_SETTLE_SECONDS = 1.0  # for a holder that has the lock and has not written its line
_POLL_SECONDS = 0.02


def beside(path: Path) -> Path:
    """The lock's file of an output that is a file, or a directory that is replaced as a whole."""
    return path.with_name(f".{path.name}{LOCK}")


@dataclass
class Lock:
    """A lock that this process holds."""

    path: Path
    descriptor: int

    def release(self, remove: bool = True) -> None:
        """Lets go of the lock.

        Args:
            remove: whether the file is removed as well.
        """
        if remove and _is_at(self.path, self.descriptor):
            self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


class HeldError(UserError):
    """Another process has the lock.

    Attributes:
        holder: "process 123 on host node1".
    """

    def __init__(self, output: Path, holder: str, flag: str) -> None:
        super().__init__(f"another process is writing to {output} ({holder}); wait for it, or choose another {flag}")
        self.holder = holder


def take(path: Path, output: Path, seconds: float = 0.0, flag: str = "--out") -> Lock:
    """Takes the lock `path` of `output`, whose directory exists.

    Args:
        seconds: how long to wait for another process that has it.
        flag: what names `output`.
    Raises:
        HeldError: another process has it.
        UserError: `path` is no lock, or cannot be written.
    """
    deadline, tries = time.monotonic() + seconds, 2
    while True:
        descriptor = _open(path, output, flag)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() >= deadline:
                tries -= 1
                holder = _holder(path)
                if holder is None and tries:  # it ended in the meantime
                    continue
                raise HeldError(output, holder or "its lock does not say which", flag) from None
            time.sleep(_POLL_SECONDS)
            continue
        except OSError:  # a file system without locks: nothing is protected
            pass
        if _is_at(path, descriptor):  # otherwise its last holder has removed it
            break
        os.close(descriptor)
    lock = Lock(path, descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{socket.gethostname()} {os.getpid()}\n".encode())
    except OSError as error:
        lock.release()
        raise cannot_write(output, error, flag) from None
    return lock


@contextlib.contextmanager
def holding(path: Path, output: Path, seconds: float = 0.0) -> Iterator[None]:
    """Holds the lock `path` of `output` in the block; see `take`. Makes the directory of `path`.

    A directory that it made is removed again if the block leaves it empty.
    """
    made = not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(output, error) from None
    try:
        lock = take(path, output, seconds)
        try:
            yield
        finally:
            lock.release()
    finally:
        if made:
            with contextlib.suppress(OSError):  # something is in it
                path.parent.rmdir()


def is_held(path: Path) -> bool:
    """Whether another process has the lock `path`. On file systems without locks the answer is no."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock, or no right to read it
        return False
    return False


def is_lock(path: Path) -> bool:
    """Whether `path` is the file of a lock, and not a person's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_lock(descriptor)
    finally:
        os.close(descriptor)


def _is_lock(descriptor: int) -> bool:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return False
    return _LINE.fullmatch(os.pread(descriptor, 1000, 0).decode(errors="replace")) is not None


def _open(path: Path, output: Path, flag: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:  # another process has removed the directory that it had made
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                continue
            raise cannot_write(output, FileNotFoundError(2, "no such directory"), flag) from None
        except OSError as error:
            if path.is_symlink() or path.is_dir():
                raise _not_ours(path) from None
            raise cannot_write(output, error, flag) from None
        if _is_lock(descriptor):
            return descriptor
        os.close(descriptor)
        raise _not_ours(path)


def _not_ours(path: Path) -> UserError:
    return UserError(f"{path} is not a lock of this project; move it away, or choose another directory")


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether `path` still is the file that `descriptor` has open."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _holder(path: Path) -> str | None:
    """Who holds the lock: "process 123 on host node1"; None if its file names no process that lives."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        try:
            found = _LINE.fullmatch(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:  # removed
            found = None
        if found and found[1] and (found[1] != socket.gethostname() or _runs(int(found[2]))):
            return f"process {found[2]} on host {found[1]}"
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True
