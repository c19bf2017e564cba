"""A tree of plain text files, one book each -> documents: BookCorpus, Project Gutenberg and the like."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.documents import Document, spelled
from data_prep.errors import UserError
from data_prep.sources import Skipped, Source
from data_prep.sources.book_text import book_to_prose

_SUFFIXES = {".txt", ".text"}
_LARGEST_BOOK = 64 << 20  # bytes; a book is in memory as a whole; War and Peace has 3 MB
_STRAY = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as "surrogateescape" reads them
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")


@dataclass(frozen=True)
class Book:
    """path: of the file. id: its path relative to the --input it was found under, with "/"."""

    path: Path
    id: str


class Books(Source):
    """The .txt files below one or more directories, or files named themselves. A `Source`; a unit is a run of files."""

    def __init__(self, paths: Sequence[Path], unit_bytes: int) -> None:
        """Puts files together into units of about `unit_bytes`. UserError: a path is missing or holds no text file."""
        super().__init__()
        for book in [book for path in paths for book in find_books(path)]:
            size = self.add_file(book.path, book.id)
            if size > _LARGEST_BOOK:
                raise UserError(
                    f"{book.path} has {size >> 20} MB, more than one book; split it, a book a file, "
                    'or make it lines of {"text": ...} for --source jsonl'
                )
            if not self.units or self.sizes[-1] + size > unit_bytes:
                self.add([], 0)
            self.units[-1].append(book)
            self.sizes[-1] += size

    def read(self, unit: list[Book]) -> Iterator[Document | Skipped]:
        """One document a file."""
        for book in unit:
            content = book.path.read_bytes()
            self.consumed += len(content)
            text = decode(content)
            if text is None:
                yield Skipped(book.id, "not a text file")
                continue
            prose = book_to_prose(text)
            yield Document(book.id, spelled(book.path.stem), prose) if prose else Skipped(book.id, "no prose")


def find_books(path: Path) -> list[Book]:
    """The text files that `path` means, in the order of their ids."""
    if path.is_file():
        return [Book(path, spelled(path.name))]
    if not path.is_dir():
        raise UserError(f"{path} does not exist; give a text file or a directory of .txt files")
    found = [file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file()]
    if not found:
        raise UserError(f"{path} holds no .txt file; give a text file or a directory of them")
    return sorted((Book(file, spelled(file.relative_to(path).as_posix())) for file in found), key=lambda book: book.id)


def _of_one_byte(content: bytes) -> str:
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError:  # five bytes mean nothing there
        return content.decode("latin-1")


def decode(content: bytes) -> str | None:
    """Text in UTF-8, UTF-16 with its mark, Windows-1252 or Latin-1, lines ended by "\\n"; None where it is no text.

    A few bytes of the latter two that stand in UTF-8 cost it nothing.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    elif b"\0" in content:
        return None
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            # A text in another encoding is hardly ever UTF-8 for even one character.
            text = content.decode("utf-8-sig", errors="surrogateescape")
            if len(_BEYOND_ASCII.findall(text)) > len(_STRAY.findall(text)):
                text = _STRAY.sub(lambda match: _of_one_byte(match[0].encode(errors="surrogateescape")), text)
            else:
                text = _of_one_byte(content)
    if len(re.findall(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text)) > len(text) // 100:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")
