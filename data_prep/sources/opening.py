"""Opens the files of a collection, decompressed by their suffix, and bounds what a damaged or hostile one costs."""

import bz2
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from common.errors import UserError
from data_prep.corpus.documents import spelled

COMPRESSED = r"(?:\.(?P<compression>gz|zst|xz|bz2))?$"  # the end of a name, to be searched without regard to case
MAX_TEXT_BYTES = 64 << 20
"""A longer record or book is no document; all of Shakespeare has 5 MB. A few compressed kB can hold many GB."""
DAMAGE = (EOFError, OSError, UnicodeDecodeError, zlib.error, lzma.LZMAError, pa.ArrowException)
"""What the readers raise for damaged content."""
_SKIPPED_BYTES = 1 << 20
_HIDDEN = re.compile(r"(?:^|/)(?:[.~]|__MACOSX/)")  # names relative to a directory


class Line(NamedTuple):
    """A line of a file."""

    offset: int  # of its first byte in the decompressed content
    content: bytes | None  # of more than MAX_TEXT_BYTES a beginning that is longer than that. None: damaged content
    size: int  # bytes of the whole line


def compression(path: Path) -> str:
    """Returns how a file is compressed: "gz", "zst", "xz", "bz2", or "" if it is not and can be read from any byte."""
    match = re.search(COMPRESSED, path.name, re.IGNORECASE)
    return (match["compression"] or "").lower() if match else ""


def open_input(path: Path) -> BinaryIO:
    """Opens a file for reading, decompressed according to its suffix."""
    kind = compression(path)
    if kind == "zst":
        return io.BufferedReader(pa.CompressedInputStream(path.open("rb"), "zstd"))
    opener: Any = {"gz": gzip.open, "xz": lzma.open, "bz2": bz2.open, "": open}[kind]
    return opener(path, "rb")


def visible_files(
    directory: Path, is_wanted: Callable[[str], object], others: list[str] | None = None
) -> list[tuple[Path, str]]:
    """Returns (path, name) of the regular files below a directory, in the order of their names relative to it.

    Links to directories are not followed. Directories that cannot be read are left out, and so are hidden files and
    directories, which other programs make: `.ipynb_checkpoints`, `._a.txt`, `~$a.txt`, `__MACOSX`. `is_wanted` tells
    from the last part of a file's path whether it is wanted. `others` gets this part of visible ones that are left out.
    """
    files = []
    for folder, inside, names in os.walk(directory):
        inside[:] = (name for name in inside if not _HIDDEN.search(f"{name}/"))
        for path in (Path(folder, name) for name in names if not _HIDDEN.search(name)):
            if is_wanted(path.name) and path.is_file():
                files.append((path, spelled(path.relative_to(directory).as_posix())))
            elif others is not None:
                others.append(path.name)
    return sorted(files, key=lambda file: file[1])


def check_regular(directory: Path) -> None:
    """Raises UserError for a FIFO or the like below a directory: a library that opens it would wait for ever."""
    for path in directory.rglob("*"):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path} is no regular file; remove it")


def is_of_the_system(error: BaseException) -> bool:
    """Tells whether an error is a failure of the system to read a file; other errors mean damaged content."""
    return isinstance(error, OSError) and error.errno is not None


def is_whole(path: Path) -> bool:
    """Whether a compressed file has its end and its checksums hold. If not, earlier text may be wrong, too."""
    with open_input(path) as file:
        try:
            while file.read(_SKIPPED_BYTES):
                pass
        except DAMAGE as error:
            if is_of_the_system(error):
                raise
            return False
    return True


def lines(path: Path, begin: int = 0, end: int = sys.maxsize) -> Iterator[Line]:
    """Yields the lines that begin in bytes [begin, end) of a file; of a compressed one all. Damage is the last line."""
    if compression(path):
        begin, end = 0, sys.maxsize
    offset = 0
    with open_input(path) as file:
        try:
            if begin:
                offset = file.seek(begin - 1)
                offset += len(file.readline())  # the rest of the line before the range
            while offset < end and (line := file.readline(MAX_TEXT_BYTES + 1)):
                start, rest = offset, line
                offset += len(line)
                while len(line) > MAX_TEXT_BYTES and rest[-1:] not in (b"", b"\n"):
                    rest = file.readline(_SKIPPED_BYTES)
                    offset += len(rest)
                yield Line(start, line, offset - start)
        except DAMAGE as error:
            if is_of_the_system(error):
                raise
            yield Line(offset, None, 0)
