"""`verify` finds any damage to a file, and names the file."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import UserError
from common.files.checksums import file_checksum
from data_prep.__main__ import main
from data_prep.corpus.documents import read_manifest, write_manifest
from data_prep.format import shard_manifest as manifests
from tests.data_prep import corpora


def test_a_whole_set(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "README.md").write_text("a card that somebody has written into")
    main(["verify", str(copy)])
    out = capsys.readouterr().out
    total = sum(path.stat().st_size for path in (copy / "spiece.model", *copy.glob("*.arrow")))
    assert out.startswith(f"verify: {copy} is whole: ")
    assert f"{total:,} bytes" in out


def flip(path: Path, offset: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)


def other_vocabulary(copy: Path) -> None:
    """If vocabulary and manifest entry are both replaced, only the recorded sha256 shows it."""
    flip(copy / "spiece.model", 1000)
    manifest = manifests.read_manifest(copy)
    entry = manifests.describe_file(copy / "spiece.model")
    manifest.files = [entry if file.name == entry.name else file for file in manifest.files]
    manifests.write_manifest(copy, manifest)


def shorter_rows(copy: Path) -> None:
    """The manifest says less than the rows hold, and its checksum is right."""
    manifests.write_manifest(copy, replace(manifests.read_manifest(copy), max_seq_length=32))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda copy: flip(copy / "shard-00001.arrow", -100, bit=5), r"the content of shard-00001\.arrow has changed"),
        (lambda copy: flip(copy / "spiece.model", 1000), r"the content of spiece\.model has changed"),
        (lambda copy: (copy / "shard-00002.arrow").unlink(), r"shard-00002\.arrow is missing"),
        (lambda copy: (copy / "shard-00099.arrow").touch(), r"shard-00099\.arrow does not belong to it"),
        (shorter_rows, r"shard-00000\.arrow has \d+ impossible rows"),
        (other_vocabulary, r"spiece\.model is not the vocabulary that the shards were made with"),
    ],
)
def test_damage_is_named(copy: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(copy)
    with pytest.raises(UserError, match=message) as caught:
        main(["verify", str(copy)])
    assert "Copy it again" in str(caught.value)


def test_a_bad_sector_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> str:
        if path.name == "shard-00001.arrow":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return file_checksum(path)

    monkeypatch.setattr("common.files.checksums.file_checksum", read)
    with pytest.raises(UserError, match=r"shard-00001\.arrow cannot be read \(Input/output error\).*Copy it again"):
        main(["verify", str(copy)])


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return corpora.write_documents(tmp_path / "documents", corpora.make_documents(30), parts=3)


def test_documents_are_checked_as_well(documents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (documents / "README.md").write_text("a card that somebody has written into")
    main(["verify", str(documents)])
    first, second, third = sorted(documents.glob("train-*"))
    total = sum(path.stat().st_size for path in (first, second, third))
    assert capsys.readouterr().out == f"verify: {documents} is whole: 3 files, {total:,} bytes\n"
    flip(first, first.stat().st_size // 2)
    third.unlink()
    shutil.copy(second, documents / "train-00007.parquet")
    manifest = read_manifest(documents)
    entry = manifest.files[1]
    manifest.files[1] = replace(entry, documents=entry.documents + 1)
    write_manifest(documents, manifest)
    message = (
        r"the content of train-00000\.parquet has changed; train-00001\.parquet holds 10 documents instead of 11; "
        r"train-00002\.parquet is missing; train-00007\.parquet does not belong to it\. .*run `extract` again"
    )
    with pytest.raises(UserError, match=message):
        main(["verify", str(documents)])


def test_what_is_no_set(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path, r"has no manifest\.json or documents\.json"),
        (tmp_path / "nothing", "is not a directory"),
    ):
        with pytest.raises(UserError, match=f"{problem}; name one that .* wrote to its end"):
            main(["verify", str(path)])
