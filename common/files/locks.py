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
from collections.abc import Callable, Iterator
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

_guards: list[tuple[Path, int]] = []
"""Path and descriptor of each lock that this process holds or watches."""


def beside(path: Path) -> Path:
    """The lock's file of an output that is a file, or a directory that is replaced as a whole."""
    return path.with_name(f".{path.name}{LOCK}")


def check_still_there(path: Path) -> None:
    """Raises UserError if the lock that guards `path` is no longer at its place."""
    for lock, descriptor in _guards:
        if lock.parent in path.parents and not _is_at(lock, descriptor):
            raise UserError(
                f"{lock.parent} was moved or replaced while this command worked in it, so it writes no more there; "
                "move it back and give the same command to go on, or choose another directory"
            )


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether `path` still is the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


@contextlib.contextmanager
def holding(
    path: Path,
    output: Path,
    seconds: float = 0.0,
    flag: str = "--out",
    stays: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[None]:
    """Holds the lock `path` of `output` in the block. Makes the directory of `path`.

    A directory that it made is removed again if the block leaves it empty.

    Args:
        seconds: how long to wait for another process that has the lock.
        flag: what names `output`.
        stays: whether the lock's file stays behind. One that was empty always does.
        say: called with a line before it waits.
    Raises:
        UserError: another process has the lock; or `path` is no lock, or cannot be written.
    """
    made = not path.parent.exists()
    try:
        descriptor, is_signed = _take(path, output, seconds, flag, say)
    except OSError as error:
        raise cannot_write(output, error, flag) from None
    with _guarding(path, descriptor):
        try:
            yield
        finally:
            if _is_at(path, descriptor):
                if is_signed and not stays:
                    path.unlink()
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
            watched.enter_context(_guarding(path, descriptor))
        yield


@contextlib.contextmanager
def _guarding(path: Path, descriptor: int) -> Iterator[None]:
    """In the block, nothing is published below the lock's directory unless the lock is still there. Closes the file."""
    _guards.append((path, descriptor))
    try:
        yield
    finally:
        _guards.remove((path, descriptor))
        os.close(descriptor)


def _take(path: Path, output: Path, seconds: float, flag: str, say: Callable[[str], None]) -> tuple[int, bool]:
    """Locks `path`, which it makes if there is none. Returns its descriptor, and whether this process has signed it."""
    began, has_said = time.monotonic(), False
    while True:
        descriptor, is_new = _open(path)
        line, waited = _line_of(descriptor), time.monotonic() - began
        is_being_made = line is not None and not line[1] and not is_new and waited < _SETTLE_SECONDS
        is_locked = line is not None and not is_being_made and _try_flock(descriptor)
        if line and is_locked and _is_at(path, descriptor):  # otherwise its last holder has removed it
            is_signed = is_new or bool(line[1])
            if is_signed:
                _sign(path, descriptor)
            return descriptor, is_signed
        os.close(descriptor)
        if line is None:
            raise UserError(f"{path} is not a lock of this project; move it away, or choose another directory")
        if not is_locked and not is_being_made:
            holder = f"process {line[2]} on host {line[1]}" if line[1] else "its lock does not say which"
            if waited >= seconds:
                raise UserError(
                    f"another process is writing to {output} ({holder}); wait for it, or choose another {flag}"
                )
            if not has_said:
                say(f"waiting for {holder}, which still holds {output}")
            has_said = True
        time.sleep(_POLL_SECONDS)


def _open(path: Path) -> tuple[int, bool]:
    """Opens the lock's file. Returns its descriptor, and whether it is new. Raises OSError for a link or directory."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it, or its directory
            try:
                return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
            except FileExistsError:
                return os.open(path, flags), False


def _sign(path: Path, descriptor: int) -> None:
    """Writes who holds the lock. On a full disk the file is removed: an empty one would count as a person's."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{socket.gethostname()} {os.getpid()}\n".encode(), 0)
        os.fsync(descriptor)  # other hosts read it, and after a power cut it must not be empty
    except OSError:
        path.unlink(missing_ok=True)
        raise


def is_held(path: Path) -> bool:
    """Whether another process has the lock `path`. On file systems without locks the answer is no."""
    try:
        with path.open("rb") as file:
            return not _try_flock(file.fileno(), fcntl.LOCK_SH)
    except OSError:  # there is no lock, or no right to read it
        return False


def _try_flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Locks an open file. Returns whether no other process has it; where files cannot be locked, none has."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _line_of(descriptor: int) -> re.Match[str] | None:
    """The content of a lock's file; None if it is no lock."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    return _LINE.fullmatch(os.pread(descriptor, 1000, 0).decode(errors="replace"))
