"""Writes files atomically: at any moment a file is absent, the old one, or complete."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from common.files import locks
from common.files.places import FULL

TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]+\.tmp")
"""The name of a file that `replacing` has not finished; group 1 is the name that it would get."""


def fsync_directory(path: Path) -> None:
    """Makes renames inside `path` survive a power loss."""
    fsync_file(path)


def fsync_file(path: Path) -> None:
    """Makes the bytes of `path` survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_default_mode(path: Path) -> None:
    """Gives `path` the mode of a file that is made beside it by `open`: what the umask and the directory's ACL allow.

    safetensors and `tempfile` make files that only their owner may read.
    """
    probe = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        probe.unlink()
    path.chmod(mode)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`. On success it is synced and renamed to `path`, else removed.

    Raises:
        UserError: the directory was moved while this command held its lock; see `common.files.locks`.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        fsync_file(temporary)
        locks.check_still_there(path)
        os.replace(temporary, path)
        fsync_directory(path.parent)
    except OSError as error:
        locks.check_still_there(path)  # a directory that was moved is why nothing could be written
        if error.errno in FULL and error.filename is None:  # that of a write does not name its file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 `text` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
