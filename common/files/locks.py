"""Locks that keep two commands from writing to one output at the same moment.

A lock is a file with the host and the number of the process that holds it. The lock itself is an flock: the kernel
releases it when the process ends, however it ends, so a file that stays behind locks nothing. An empty file may be a
person's: it is locked, but neither written to nor removed. (The package filelock truncates the file that it finds.)

While a command holds a lock, it publishes files below the lock's directory only if the lock is still there: otherwise
the directory has been moved, and another one may have its name. `common.files.atomic` asks `check_still_there`.
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
_SETTLE_SECONDS = 1.0  # for a holder that has made the file and has not written its line
_POLL_SECONDS = 0.02


def beside(path: Path) -> Path:
    """The lock's file of an output that is a file, or a directory that is replaced as a whole."""
    return path.with_name(f".{path.name}{LOCK}")


@dataclass
class Lock:
    """A lock that this process holds."""

    path: Path
    descriptor: int
    is_signed: bool = True

    @property
    def is_there(self) -> bool:
        """Whether `path` still is the file that is locked."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self.descriptor))
        except OSError:
            return False

    def release(self, remove: bool = True) -> None:
        """Lets go of the lock. With `remove` the file is removed as well; one that was empty stays."""
        if remove and self.is_signed and self.is_there:
            self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


_guards: list[Lock] = []
"""The locks of `guarding` blocks that this process is in."""


@contextlib.contextmanager
def guarding(lock: Lock) -> Iterator[None]:
    """In the block nothing is published below the directory of `lock` unless the lock is still there."""
    _guards.append(lock)
    try:
        yield
    finally:
        _guards.remove(lock)


def check_still_there(path: Path) -> None:
    """Raises UserError if the lock that guards `path` is no longer at its place."""
    for lock in _guards:
        directory = lock.path.parent
        if directory in path.parents and not lock.is_there:
            raise UserError(
                f"{directory} was moved or replaced while this command worked in it, so it writes no more there; "
                "move it back and give the same command to go on, or choose another directory"
            )


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
    deadline = time.monotonic() + seconds
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = _open(path)
        except FileNotFoundError:  # another process has just removed the lock, or the directory that it had made
            continue
        except OSError as error:
            raise cannot_write(output, error, flag) from None
        is_locked = _try_flock(lock.descriptor)
        if is_locked and lock.is_there:  # otherwise its last holder has removed it
            break
        try:
            if not is_locked and time.monotonic() >= deadline:
                raise HeldError(output, _holder(lock.descriptor), flag)
        finally:
            os.close(lock.descriptor)
        time.sleep(_POLL_SECONDS)
    try:
        if lock.is_signed:
            os.ftruncate(lock.descriptor, 0)
            os.pwrite(lock.descriptor, f"{socket.gethostname()} {os.getpid()}\n".encode(), 0)
            os.fsync(lock.descriptor)  # other hosts read it, and after a power cut it must not be empty
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
    lock = take(path, output, seconds)
    try:
        with guarding(lock):
            yield
    finally:
        made = made and lock.is_there
        lock.release()
        if made:
            with contextlib.suppress(OSError):  # something is in it
                path.parent.rmdir()


@contextlib.contextmanager
def watching(path: Path) -> Iterator[None]:
    """For the other processes of a job whose first one is `holding` the lock `path`: as for that, nothing is published
    below its directory once the directory was moved."""
    with contextlib.ExitStack() as watched:
        with contextlib.suppress(OSError):  # a file system that does not show the lock to this host yet
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            watched.callback(os.close, descriptor)
            watched.enter_context(guarding(Lock(path, descriptor)))
        yield


def is_held(path: Path) -> bool:
    """Whether another process has the lock `path`. On file systems without locks the answer is no."""
    try:
        with path.open("rb") as file:
            return not _try_flock(file.fileno(), fcntl.LOCK_SH)
    except OSError:  # there is no lock, or no right to read it
        return False


def is_lock(path: Path) -> bool:
    """Whether `path` is the file of a lock, and not a person's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _line_of(descriptor) is not None
    finally:
        os.close(descriptor)


def _open(path: Path) -> Lock:
    """The lock's file, which it makes if there is none. An empty one has a second to get the line of its maker."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        return Lock(path, os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666))
    not_ours = UserError(f"{path} is not a lock of this project; move it away, or choose another directory")
    try:
        descriptor = os.open(path, flags)
    except OSError:
        if path.is_symlink() or path.is_dir():
            raise not_ours from None
        raise
    line = _line_of(descriptor, _SETTLE_SECONDS)
    if line is None:
        os.close(descriptor)
        raise not_ours
    return Lock(path, descriptor, is_signed=bool(line[0]))


def _try_flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Locks an open file. Returns whether no other process has it; where files cannot be locked, none has."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _line_of(descriptor: int, seconds: float = 0.0) -> re.Match[str] | None:
    """The content of a lock's file, for which it waits so long if the file is empty; None if it is no lock."""
    deadline = time.monotonic() + seconds
    while stat.S_ISREG(os.fstat(descriptor).st_mode):
        line = _LINE.fullmatch(os.pread(descriptor, 1000, 0).decode(errors="replace"))
        if line is None or line[1] or time.monotonic() >= deadline:
            return line
        time.sleep(_POLL_SECONDS)
    return None


def _holder(descriptor: int) -> str:
    """Who holds the lock: "process 123 on host node1"."""
    line = _line_of(descriptor, _SETTLE_SECONDS)
    return f"process {line[2]} on host {line[1]}" if line and line[1] else "its lock does not say which"
