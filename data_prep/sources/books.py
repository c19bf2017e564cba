"""Plain text files, one book each -> documents: BookCorpus, Project Gutenberg and the like."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import UserError
from data_prep.corpus.documents import Document, spelled
from data_prep.sources import Skipped, Source, files_below, planning
from data_prep.sources.book_text import book_to_prose

_TEXT_FILE = re.compile(r".\.(?:txt|text)$", re.IGNORECASE)
_MAX_BOOK_BYTES = 64 << 20  # a book is read into memory whole; War and Peace has 3 MB
_STRAY = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, decoded with "surrogateescape"
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")


class Books(Source):
    """A `Source`: the .txt files below directories, or single files.

    A work unit is a list of (path, id): the id of a book is its path relative to the --input that contains it.
    """

    def __init__(self, paths: Sequence[Path], unit_bytes: int) -> None:
        """Groups files into work units of about `unit_bytes`. UserError: a path is missing or contains no text file."""
        super().__init__()
        books = [book for path in paths for book in find_books(path)]
        with planning(len(books)) as progress:
            for book in books:
                self._add_book(book, unit_bytes)
                progress.update()

    def _add_book(self, book: tuple[str, str], unit_bytes: int) -> None:
        size = self.add_file(*book)
        if size > _MAX_BOOK_BYTES:
            raise UserError(
                f"{book[0]} has {size >> 20} MB, more than one book; split it into one file per book, "
                'or make it lines of {"text": ...} for --source jsonl'
            )
        if not self.units or self.sizes[-1] + size > unit_bytes:
            self.add([], 0)
        self.units[-1].append(book)
        self.sizes[-1] += size

    def read(self, unit: list[tuple[str, str]]) -> Iterator[Document | Skipped]:
        """Yields one document for each file."""
        for file, book_id in unit:
            path = Path(file)
            content = path.read_bytes()
            self.consumed += len(content)
            text = decode(content)
            if text is None:
                yield Skipped(book_id, "not a text file")
                continue
            prose = book_to_prose(text)
            yield Document(book_id, spelled(path.stem), prose) if prose else Skipped(book_id, "no prose")


def find_books(path: Path) -> list[tuple[str, str]]:
    """Returns (path, id) of the text files at `path`, in the order of their ids."""
    if path.is_file():
        return [(str(path), spelled(path.name))]
    if not path.is_dir():
        raise UserError(f"{path} does not exist; give a text file or a directory of .txt files")
    if not (found := files_below(path, _TEXT_FILE.search)):
        raise UserError(f"{path} holds no .txt file; give a text file or a directory of them")
    return found


def _of_one_byte(content: bytes) -> str:
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError:  # cp1252 leaves five bytes undefined
        return content.decode("latin-1")


def decode(content: bytes) -> str | None:
    """Decodes UTF-8, UTF-16 with a byte order mark, Windows-1252 or Latin-1. Returns None if it is not text.

    Lines end with "\\n". UTF-8 may contain a few bytes of Windows-1252 or Latin-1.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    elif b"\0" in content:
        return None
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            # In a text of another encoding, hardly any bytes form a character of UTF-8.
            text = content.decode("utf-8-sig", errors="surrogateescape")
            if len(_BEYOND_ASCII.findall(text)) > len(_STRAY.findall(text)):
                text = _STRAY.sub(lambda match: _of_one_byte(match[0].encode(errors="surrogateescape")), text)
            else:
                text = _of_one_byte(content)
    if len(re.findall(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text)) > len(text) // 100:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")
