"""Planning: linear in the number of files, exact about files that are given twice, and not silent for long."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep import sources
from data_prep.corpus.documents import Document
from data_prep.sources import Source, files_below, fingerprint
from data_prep.sources.books import Books

FILES = 20_000


class Files(Source):
    """A source of files that nobody reads."""

    def read(self, unit: object) -> Iterator[Document]:
        yield from ()


class Name(str):
    """A name that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


def test_a_name_is_not_compared_with_all_others(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(FILES)]
    for path in paths:
        path.touch()
    source = Files()
    Name.compared = 0
    for path in paths:
        source.add_file(path, Name(path.name))
    assert Name.compared < FILES  # comparing all with all: 200 million
    assert len(source.inputs) == FILES
    assert len(pickle.dumps(source)) < len(pickle.dumps(source.inputs)) + 1000  # other ranks get the plan only


def test_a_file_given_twice_is_refused_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = tmp_path / "books" / "a.txt"
    book.parent.mkdir()
    book.write_text("It is told.")
    (tmp_path / "link.txt").symlink_to(book)
    (tmp_path / "linked").symlink_to(book.parent)
    monkeypatch.chdir(tmp_path / "books")
    for other in (book, tmp_path / "books" / ".." / "books" / "a.txt", tmp_path / "link.txt", Path("a.txt")):
        with pytest.raises(UserError, match="is given twice"):
            Books([book, other], 1 << 20)
    with pytest.raises(UserError, match="is given twice"):
        Books([tmp_path / "books", tmp_path / "linked" / "a.txt"], 1 << 20)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("It is told again.")
    with pytest.raises(UserError, match=r"two files are called a\.txt"):
        Books([book, tmp_path / "more"], 1 << 20)


def test_files_below(tmp_path: Path) -> None:
    for name in ("b/c.txt", "b/a.txt", "a.TXT", ".hidden/x.txt", ".txt", "b.text", "c.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "d.txt").mkdir()
    (tmp_path / "e.txt").symlink_to(tmp_path / "a.TXT")
    (tmp_path / "f.txt").symlink_to(tmp_path / "nothing")
    (tmp_path / "g").symlink_to(tmp_path / "b")
    found = files_below(tmp_path, lambda name: name.lower().endswith(".txt"))
    assert [name for _, name in found] == [".hidden/x.txt", ".txt", "a.TXT", "b/a.txt", "b/c.txt", "e.txt"]
    assert [Path(path) for path, _ in found] == [tmp_path / name for _, name in found]


def test_the_fingerprint_of_a_large_file_covers_blocks_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MAX_FINGERPRINTED_BYTES", 64 * 10)  # 64 blocks of 10 bytes

    def fingerprint_of(content: bytes) -> str:
        path = tmp_path / "file"
        path.write_bytes(content)
        with path.open("rb") as file:
            return fingerprint(file.fileno(), len(content))

    for size in (0, 1, 10, 11, 640, 641, 5000):
        content = bytes(number % 251 for number in range(size))
        assert fingerprint_of(content) == fingerprint_of(content)
        if size:
            assert fingerprint_of(content) != fingerprint_of(content[:-1] + b"\xff")
            assert fingerprint_of(content) != fingerprint_of(b"\xff" + content[1:])


def test_long_planning_shows_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("It is told.")
    Books([tmp_path], 1 << 20)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sources, "_QUIET_SECONDS", 0.0)
    Books([tmp_path], 1 << 20)
    assert capsys.readouterr().err.startswith("plan: 3 of 3 files (100 %)")
