"""Says before the work that a place cannot be written to, and explains errors of the file system in one line."""

import errno
import os
import stat
from pathlib import Path

from common.errors import UserError
from common.files.names import MAX_NAME_BYTES

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk or quota."""
_OF_PLACES = (
    *FULL,
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENAMETOOLONG, errno.EBUSY, errno.ETXTBSY),
)
"""Error numbers that speak of a file or its disk, not of a mistake of the program."""


def check_directory(directory: Path, flag: str = "--out") -> None:
    """Raises UserError unless files can be made in `directory`, which need not exist. Writes nothing.

    Args:
        flag: what names the directory.
    """
    place = Path(os.path.abspath(directory))
    try:
        if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in place.parts):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        if not place.is_dir():
            kind = "a link that leads nowhere" if place.is_symlink() else "a file"
            raise UserError(f"cannot write to {directory}: {place} is {kind}; choose another {flag}")
    except OSError as error:
        raise cannot_write(directory, error, flag) from None
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {directory}: {_why_not(place)}; choose another {flag}")


def check_file(path: Path, flag: str = "--out") -> None:
    """Raises UserError if `path` exists and is no regular file, or one that cannot be written. Writes nothing."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not stat.S_ISREG(path.lstat().st_mode):
        raise UserError(f"{path} is not a regular file, and it would be written; move it away")
    if not os.access(path, os.W_OK):
        raise UserError(f"cannot write {path}: {_why_not(path)}; make it writable, or choose another {flag}")


def _why_not(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{path} is on a read-only file system"
    return f"{path} is write-protected"


def cannot_write(place: Path, error: OSError, flag: str = "--out") -> UserError:
    """A UserError that says why `place` cannot be written."""
    remedy = "free some space" if error.errno in FULL else f"choose another {flag}"
    return UserError(f"cannot write to {place}: {error.strerror or error}; {remedy}")


def explain(error: OSError) -> UserError | None:
    """A UserError in place of an error of the file system; None if the error does not name a file."""
    if error.errno not in _OF_PLACES or error.filename is None:
        return None
    remedy = "free some space" if error.errno in FULL else "make it accessible, or choose another place"
    return UserError(f"{os.fsdecode(error.filename)}: {error.strerror}; {remedy}")
