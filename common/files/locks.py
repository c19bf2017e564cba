"""Locks that keep two commands from writing to one output at the same moment.

A lock is a file with the host and the number of the process that holds it. The lock itself is an flock: the kernel
releases it when the process ends, however it ends, so a file that stays behind locks nothing. An empty file may be a
person's: it is locked, but neither written to nor removed.

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
    is_signed: bool = True

    @property
    def is_there(self) -> bool:
        """Whether `path` still is the file that is locked."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self.descriptor))
        except OSError:
            return False

    def release(self, remove: bool = True) -> None:
        """Lets go of the lock.

        Args:
            remove: whether the file is removed as well; one that was empty stays.
        """
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
    deadline, tries = time.monotonic() + seconds, 2
    while True:
        lock = _open(path, output, flag)
        try:
            fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock.descriptor)
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
        if lock.is_there:  # otherwise its last holder has removed it
            break
        os.close(lock.descriptor)
    try:
        if lock.is_signed:
            os.ftruncate(lock.descriptor, 0)
            os.write(lock.descriptor, f"{socket.gethostname()} {os.getpid()}\n".encode())
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(output, error) from None
    try:
        lock = take(path, output, seconds)
        try:
            with guarding(lock):
                yield
        finally:
            made = made and lock.is_there
            lock.release()
    finally:
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


def _open(path: Path, output: Path, flag: str) -> Lock:
    """The lock's file, which it makes if there is none. An empty one has a second to get the line of its maker."""
    flags, deadline = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, time.monotonic() + _SETTLE_SECONDS
    while True:
        try:
            with contextlib.suppress(FileExistsError):
                return Lock(path, os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666))
            descriptor = os.open(path, flags)
        except FileNotFoundError:  # another process has removed the lock, or the directory that it had made
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                continue
            raise cannot_write(output, FileNotFoundError(2, "no such directory"), flag) from None
        except OSError as error:
            if path.is_symlink() or path.is_dir():
                raise _not_ours(path) from None
            raise cannot_write(output, error, flag) from None
        is_lock, is_empty = _is_lock(descriptor), os.fstat(descriptor).st_size == 0
        if is_lock and (not is_empty or time.monotonic() >= deadline):
            return Lock(path, descriptor, is_signed=not is_empty)
        os.close(descriptor)
        if not is_lock:
            raise _not_ours(path)
        time.sleep(_POLL_SECONDS)


def _not_ours(path: Path) -> UserError:
    return UserError(f"{path} is not a lock of this project; move it away, or choose another directory")


def _holder(path: Path) -> str | None:
    """Who holds the lock: "process 123 on host node1"; None if its file names no process that lives."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        try:
            line = _LINE.fullmatch(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:  # removed
            line = None
        if line and line[1] and (line[1] != socket.gethostname() or _runs(int(line[2]))):
            return f"process {line[2]} on host {line[1]}"
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
