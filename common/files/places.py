"""Says before the work that a place cannot be written to, and explains errors of the file system in one line.

`plain_name` checks names that are read from files before they become paths.
"""

import errno
import os
import re
import tempfile
from pathlib import Path
from typing import BinaryIO

from common.errors import UserError

MAX_NAME_BYTES = 255  # of every file system in use
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # error numbers of a full disk or quota


def check_directory(directory: Path, flag: str = "--out") -> None:
    """Raises UserError unless files can be made in `directory`, which need not exist. Writes nothing."""
    place = Path(os.path.abspath(directory))
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    try:
        # Rights and quotas do not show whether a file can be made. One that no name leads to does.
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise cannot_write(directory, error, flag) from None


def check_new_file(path: Path) -> None:
    """Raises UserError unless the file of --out, `path`, can be made: it is not there, and its directory is."""
    if os.path.lexists(path):
        raise UserError(f"--out {path} exists already; move it away, or choose another name")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: {path.parent} is not a directory; make it first")
    check_directory(path.parent)


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading. Raises OSError for another one: opening a FIFO would wait for a writer."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return path.open("rb")


def cannot_write(place: Path, error: OSError, flag: str = "--out") -> UserError:
    """A UserError that says why `place` cannot be written."""
    remedy = "free some space" if error.errno in FULL else f"choose another {flag}"
    return UserError(f"cannot write to {place}: {error.strerror or error}; {remedy}")


def explain(error: BaseException) -> UserError | None:
    """A UserError in place of an error of the file system; None for another, or one of a file that it does not name.

    A UserError stays as it is.
    """
    if not isinstance(error, OSError):
        return error if isinstance(error, UserError) else None
    place = None if error.filename is None else os.fsdecode(error.filename)
    if error.errno in FULL:
        where = f" at {place}" if place else ""
        return UserError(f"the disk is full{where} ({error.strerror}); free some space and give the same command again")
    if place is None:
        return None
    return UserError(f"{place}: {error.strerror}; make it accessible, or choose another place")


def plain_name(name: object, source: Path | str, pattern: re.Pattern[str] | None = None) -> str:
    """Returns `name`, which was read from `source`, if it is safe as a path component.

    UserError: it is a path ("../victim", "/etc/passwd"), has a control character, is longer than a file system allows,
    is not a string, or does not match the `pattern` as a whole.
    """
    # What is printable has no surrogates, which UTF-8 cannot encode.
    is_plain = isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= MAX_NAME_BYTES
    is_path = name in (".", "..") or not {"/", "\\"}.isdisjoint(str(name))
    if not is_plain or is_path or (pattern is not None and pattern.fullmatch(str(name)) is None):
        shown = repr(name)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        raise UserError(f"{source} names {shown}, which is no file name that belongs there; restore {source}")
    return str(name)
