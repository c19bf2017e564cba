"""Checks names that are read from files before they become paths."""

import os
import re
from pathlib import Path

from common.errors import UserError

MAX_NAME_BYTES = 255  # of every file system in use


def is_plain_name(name: object) -> bool:
    """Whether `name` is a single path component: no separator, not "." or "..", no control character, no longer than
    a file system allows."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name:
        return False
    try:
        return name.isprintable() and len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def plain_name(name: object, source: Path | str, pattern: re.Pattern[str] | None = None) -> str:
    """Returns `name`, which was read from `source`, if it is safe as a path component.

    Args:
        pattern: what the whole name must match; None accepts every plain name.

    Raises:
        UserError: it is a path ("../victim", "/etc/passwd"), is not a string, or does not match.
    """
    if not is_plain_name(name) or (pattern is not None and pattern.fullmatch(str(name)) is None):
        shown = repr(name)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        raise UserError(f"{source} names {shown}, which is no file name that belongs there; restore {source}")
    return str(name)


def refuse_link(path: Path, source: Path | str) -> None:
    """Raises UserError if `path`, which `source` names, is a symbolic link: a link may lead anywhere."""
    if path.is_symlink():
        raise UserError(f"{path}, which {source} names, is a symbolic link; put the file itself there")


def referenced_directory(path: object, source: Path | str) -> Path:
    """Returns the directory of another run, which `source` names and which is only read.

    Raises UserError unless `path` is absolute and normalised.
    """
    if (
        not isinstance(path, str)
        or not path.isprintable()
        or not os.path.isabs(path)
        or os.path.normpath(path) != path.rstrip("/")
    ):
        raise UserError(f"{source} refers to {path!r:.80}, which is no absolute path of a run; restore {source}")
    return Path(path)
