"""Text files of unknown encoding: each is decoded rightly, or skipped, and never becomes other letters."""

import tomllib
from pathlib import Path

import pytest

from data_prep.__main__ import main
from data_prep.corpus.documents import read_manifest
from data_prep.sources.encodings import BINARY, UNKNOWN, NotDecodedError, decode
from tests.data_prep import corpora

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
