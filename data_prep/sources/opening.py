"""Opens the files of a collection, decompressed by their suffix, and bounds what a damaged or hostile one costs.

It also decodes text files whose encoding is not stated: UTF-8, UTF-16, or Windows-1252 in a western language. Nearly
every other encoding decodes nearly every file, to wrong letters. So a file that is none of the three is not read,
unless the user names its encoding.
"""

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
from data_prep.text import ENGLISH, closest

COMPRESSED = r"(?:\.(?P<compression>gz|zst|xz|bz2))?$"  # the end of a name, to be searched without regard to case
MAX_TEXT_BYTES = 64 << 20
"""A longer record or book is no document; all of Shakespeare has 5 MB. A few compressed kB can hold many GB."""
DAMAGE = (EOFError, OSError, UnicodeDecodeError, zlib.error, lzma.LZMAError, pa.ArrowException)
"""What the readers raise for damaged content."""
_SKIPPED_BYTES = 1 << 20
_HIDDEN = re.compile(r"(?:^|/)(?:[.~]|__MACOSX/)")  # names relative to a directory

BINARY = "not a text file"
UNKNOWN = "in no known encoding (see --encoding and --language)"
_STRAY = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, decoded with "surrogateescape"
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BYTES_OF_JAPANESE = b"\x1b$"  # begins kanji in ISO-2022-JP, all of whose bytes are ASCII
_WESTERN = frozenset(["af", "ca", "da", "de", "en", "es", "eu", "fi", "fr", "ga", "gl", "it", "nb", "nl", "pt", "sv"])
"""Languages whose texts are in Windows-1252, or Latin-1, if they are not in UTF-8."""
_MIN_SHARE = 0.9  # of the characters beyond ASCII that must stand where letters and punctuation of these languages do
_MAX_LETTERS = 0.1  # of the characters of a text that may be letters with accents
_LETTERS, _CAPITALS = "àáâãäåæçèéêëìíîïñòóôõöøùúûüœß", "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜŒ"
_PUNCTUATION = "“”„‚‘’‹›«»–—…·•°§¿¡£€©®™†×±½¼¾²³ªº´\xa0\xad"
# No capital follows a small letter or a sign without a blank (in another encoding it would be a quotation mark), and no
# punctuation but an apostrophe is inside a word.
_FITTING = re.compile(
    rf"[{_LETTERS}]|(?<![a-z{_LETTERS}.,!?;:])[{_CAPITALS}]"
    rf"|(?<!\w)[{_PUNCTUATION}]|[{_PUNCTUATION}](?!\w)|(?<=\w)[’·](?=\w)"
)


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


def visible_files(directory: Path, is_wanted: Callable[[str], object]) -> list[tuple[Path, str]]:
    """Returns (path, name) of the regular files below a directory, in the order of their names relative to it.

    Links to directories are not followed. Directories that cannot be read are left out, and so are hidden files and
    directories, which other programs make: `.ipynb_checkpoints`, `._a.txt`, `~$a.txt`, `__MACOSX`. `is_wanted` tells
    from the last part of a file's path whether it is wanted.
    """
    files = [
        (Path(folder, name), spelled(Path(folder, name).relative_to(directory).as_posix()))
        for folder, _, names in os.walk(directory)
        for name in names
        if is_wanted(name) and Path(folder, name).is_file()
    ]
    return sorted((file for file in files if not _HIDDEN.search(file[1])), key=lambda file: file[1])


def check_regular(directory: Path) -> None:
    """Raises UserError for a FIFO or the like below a directory: a library that opens it would wait for ever."""
    for path in directory.rglob("*"):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path} is no regular file; remove it")


def is_of_the_system(error: BaseException) -> bool:
    """Tells whether an error is a failure of the system to read a file; other errors mean damaged content."""
    return isinstance(error, OSError) and error.errno is not None


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


class NotDecodedError(Exception):
    """A file gives no text; the message says why, in a few words from a fixed set."""


def check_encoding(name: str | None) -> None:
    """Raises UserError unless `name` is None or the name of an encoding of text that Python knows."""
    try:
        if name is not None:
            "a".encode(name)
    except (LookupError, ValueError):
        remedy = "give one such as cp1251 or big5"
        raise UserError(f"--encoding {name} is no encoding that Python knows; {remedy}") from None


def decode(content: bytes, language: str = ENGLISH, encoding: str | None = None) -> str:
    """Returns the text of a file; its lines end with "\\n". NotDecodedError: it is no text, or in no known encoding.

    UTF-8 may contain a few bytes of Windows-1252 or Latin-1.
    """
    if encoding is not None:
        try:
            text = content.decode(encoding)
        except UnicodeError:
            raise NotDecodedError(f"not in {encoding}") from None
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    elif (decoded := _of_utf_8(content)) is not None or (decoded := _of_windows_1252(content, language)) is not None:
        text = decoded
    else:
        raise NotDecodedError(BINARY if content.count(0) > max(1, len(content) // 100) else UNKNOWN)
    if len(_CONTROL.findall(text)) > max(1, len(text) // 100):
        raise NotDecodedError(BINARY)
    return text.replace("\0", " ").replace("\r\n", "\n").replace("\r", "\n")


def _of_utf_8(content: bytes) -> str | None:
    """The text if the content is UTF-8 but for a few bytes; None otherwise."""
    if _BYTES_OF_JAPANESE in content:
        return None
    text = content.decode("utf-8-sig", errors="surrogateescape")
    # In a text of another encoding, hardly any bytes form a character of UTF-8.
    if len(_BEYOND_ASCII.findall(text)) >= max(1, len(_STRAY.findall(text))):
        return _STRAY.sub(_of_stray, text)
    return text if not _STRAY.search(text) else None


def _of_stray(match: re.Match[str]) -> str:
    byte = match[0].encode(errors="surrogateescape")
    try:
        return byte.decode("cp1252")
    except UnicodeDecodeError:  # cp1252 leaves five bytes undefined
        return byte.decode("latin-1")


def _of_windows_1252(content: bytes, language: str) -> str | None:
    """The text in Windows-1252 if it looks like one of a western language; None otherwise."""
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return None
    beyond, letters = len(re.findall(r"[^\x00-\x7f]", text)), len(re.findall(r"[^\W\x00-\x7f]", text))
    is_likely = letters <= max(2, _MAX_LETTERS * len(text)) and len(_FITTING.findall(text)) >= _MIN_SHARE * beyond
    is_western = closest(language, _WESTERN) in _WESTERN and _BYTES_OF_JAPANESE not in content
    return text if is_western and is_likely else None
