"""`verify` finds and names any damage; `show` prints rows as they are stored, `stats` counts that are their own."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.errors import UserError
from common.files.checksums import file_checksum
from data_prep.__main__ import main
from data_prep.corpus.documents import read_manifest, write_manifest
from data_prep.format import shard_manifest as manifests
from data_prep.format.pairs import Parts
from data_prep.format.shards import ShardRows, open_shards
from data_prep.jobs.show_rows import describe_row, paragraph
from data_prep.text.normalize import normalize
from data_prep.text.vocabulary import Vocabulary
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
        (lambda copy: [(copy / f"extra-{n}").touch() for n in range(9)], "".join(f"extra-{n} .*" for n in range(9))),
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


def test_documents_are_checked_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = corpora.write_documents(tmp_path / "documents", corpora.make_documents(30), parts=3)
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


def test_a_row_by_hand(vocabulary: Vocabulary) -> None:
    first, second, third = corpora.make_sentences(3, seed=8)
    a, b, lonely = vocabulary.encode([normalize(s)[:40].strip() for s in (first, second, third)])
    row = ShardRows(
        np.array(a + b + lonely, np.uint16),
        Parts(np.array([2, 0]), np.array([len(a) - 2, len(lonely)]), np.array([len(b) - 1, 0]), np.array([1, 0])),
        np.array([4, 17]),
        np.array([2]),
    )
    used = len(a) + len(b) + 3 + len(lonely) + 2
    lines = [line for text in describe_row(9, row, 128, vocabulary) for line in text.split("\n")]
    assert lines[0] == f"row 9: 2 pairs, {used} of 128 positions"
    assert lines[1] == f"  pair 0, document 4: A {len(a)} tokens, B {len(b)} tokens"
    for name, ids in (("lead ", a[:2]), ("A    ", a[2:]), ("B    ", b[:-1]), ("trail", b[-1:])):
        place = lines.index(f"    {name} {vocabulary.decode(ids)}")
        assert lines[place + 1].split() == [vocabulary.pieces[i] for i in ids]
    assert f"  pair 1, document 17: A {len(lonely)} tokens, no B" in lines
    assert paragraph("  ", "red \x1b[31m \u202edrow") == r"  red \x1b[31m \u202edrow"


def test_the_command(shard_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(open_shards(shard_directory))
    for words, rows in ((["-n", "2"], [0, count // 2]), (["-n", "3", "--row", str(count - 2)], [count - 2, count - 1])):
        main(["show", str(shard_directory), *words])
        out = capsys.readouterr().out
        assert [line.split(":")[0] for line in out.splitlines() if line.startswith("row")] == [f"row {n}" for n in rows]
    assert max(map(len, out.splitlines())) <= 110
    for options in (["-n", "0"], ["--row", "-1"], ["--row", "1000000"]):
        with pytest.raises(UserError, match=options[0]):
            main(["show", str(shard_directory), *options])


def test_the_sentences_of_documents_are_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ['{"title": "Dr. No", "text": "It is by Dr. No. He was born in 1962.\\nIt ends."}', '{"text": "Two."}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    words = ["--source", "jsonl", "--input", str(tmp_path / "a.jsonl"), "--title-field", "title"]
    main(["extract", *words, "--out", str(tmp_path / "documents")])
    capsys.readouterr()
    main(["show", str(tmp_path / "documents"), "--sentences", "-n", "1"])
    assert capsys.readouterr().out.splitlines() == [
        "document 0, 3 sentences: Dr. No",
        *("    It is by Dr. No.", "    He was born in 1962.", "    It ends.", ""),
    ]
    with pytest.raises(UserError, match="--sentences shows the first documents"):
        main(["show", str(tmp_path / "documents"), "--sentences", "--row", "3"])


def test_the_counts_are_those_of_the_rows(shard_directory, vocabulary, capsys):
    main(["stats", str(shard_directory)])
    lines = capsys.readouterr().out.splitlines()
    found = dict(re.split("  +", line.strip(), maxsplit=1) for line in lines[1:])
    rows = list(open_shards(shard_directory))
    tokens = [vocabulary.pieces[token] for row in rows for token in row.tokens.tolist()]
    pairs = [sum(pair) for row in rows for pair in zip(*(part.tolist() for part in row.parts))]
    assert found["tokens"] == f"{len(tokens):,}"
    assert found["unknown tokens"].startswith(f"{tokens.count('<unk>'):,} ")
    assert found["pairs"] == f"{len(pairs):,} of {sum(pairs) / len(pairs):.1f} tokens on average"
    most = max(len(row.documents) for row in rows)
    assert found["pairs a row"] == f"{len(pairs) / len(rows):.2f}, at most {most}"
    used = sum(int(row.parts.positions().sum()) for row in rows)
    assert found["fill"] == f"{used / (64 * len(rows)):.2%}"
