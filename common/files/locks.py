"""Locks that keep two commands from writing to one output at the same moment, by the package filelock.

A lock is a file with the host and the number of the process that holds it. The kernel releases it when the process
ends, however it ends, so a file that stays behind locks nothing.
"""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from common.errors import UserError
from common.files.places import cannot_write

LOCK = ".lock"  # the name of the lock inside a directory that a command works in
WAIT_SECONDS = 60.0  # how long a command waits for another that only moves its finished files into place
_LINE = re.compile(r"(?:(\S+) (\d+)\n)?")
"""All that a lock's file holds: host and process; nothing before its holder has written them."""


def beside(path: Path) -> Path:
    """The lock's file of an output that is a file, or a directory that is replaced as a whole."""
    return path.with_name(f".{path.name}{LOCK}")


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

    A directory that it has made goes again if the block fails and nothing but the lock is in it. UserError: another
    process has the lock for longer than `seconds`; or `path` is no lock, or cannot be written.

    stays: whether the lock's file stays behind. One that was empty may be a person's, and always does.
    say: called with a line before it waits.
    """
    lock, is_empty = FileLock(path), _is_empty(path)
    is_new, has_failed = not path.parent.exists(), True
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Twice: another process may remove it after the first look, or make it.
        if _holder(path) is None and os.path.lexists(path) and _holder(path) is None:
            raise UserError(f"{path} is not a lock of this project; move it away, or choose another directory")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if seconds > 0:
                say(f"waiting for {_holder(path)}, which still holds {output}")
            lock.acquire(timeout=seconds)
        path.write_text(f"{socket.gethostname()} {os.getpid()}\n")
    except Timeout:
        who = f"another process is writing to {output} ({_holder(path)})"
        raise UserError(f"{who}; wait for it, or choose another {flag}") from None
    except OSError as error:
        lock.release()
        raise cannot_write(output, error, flag) from None
    try:
        yield
        has_failed = False
    finally:
        is_alone = has_failed and is_new and path.parent.is_dir() and os.listdir(path.parent) == [path.name]
        if is_alone or (not stays and not is_empty):
            path.unlink(missing_ok=True)  # before the release: one that waits sees that the file has gone
        if is_alone:
            with contextlib.suppress(OSError):  # another process has begun to work there
                path.parent.rmdir()
        lock.release()


def _is_empty(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size == 0
    except FileNotFoundError:  # its holder has removed it
        return False


def _holder(path: Path) -> str | None:
    """Who has written into a lock's file, for people; None if it is no lock."""
    try:
        line = _LINE.fullmatch(path.read_text(errors="replace")) if path.is_file() and not path.is_symlink() else None
    except OSError:
        return "a process of another user"
    if line is None:
        return None
    return f"process {line[2]} on host {line[1]}" if line[1] else "its lock does not say which"
