"""Writes files atomically: at any moment a file is absent, the old one, or complete."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from common.files.places import FULL

TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]+\.tmp")
"""The name of a file that `replacing` has not finished; group 1 is the name that it would get."""


def temporary_beside(path: Path) -> Path:
    """A new hidden name in the directory of `path`, of the form TEMPORARY."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def sync(path: Path) -> None:
    """Makes the bytes of a file, or the renames inside a directory, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_default_mode(path: Path) -> None:
    """Gives `path` the mode of a file that is made beside it by `open`: what the umask and the directory's ACL allow.

    safetensors and `tempfile` make files that only their owner may read.
    """
    probe = temporary_beside(path)
    probe.touch(exist_ok=False)
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    path.chmod(mode)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`. On success it is synced and renamed to `path`, else removed."""
    temporary = temporary_beside(path)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        if error.errno in FULL and error.filename is None:  # that of a write does not name its file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 `text` to `path` atomically."""
    write_bytes(path, text.encode())


def write_unless_other(path: Path, content: bytes) -> None:
    """Writes `content` to `path`. Raises UserError if `path` exists with other content."""
    if os.path.lexists(path):
        if not path.is_symlink() and path.is_file() and path.read_bytes() == content:
            return
        raise UserError(f"{path} is there already and this job did not write it; move it away and run this again")
    write_bytes(path, content)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Writes `content` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
