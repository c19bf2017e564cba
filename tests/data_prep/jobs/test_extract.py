"""`extract`: equal bytes on any number of ranks and after a kill, the split, and mistakes in one line."""

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.corpus.documents import SPLITS, read_manifest, split_of
from tests.data_prep import corpora
from tests.data_prep.corpus.test_dedup import interrupted
from tests.data_prep.foreign_pages import WIKIS, export


def run(source: str, inputs: Sequence[Path], out: Path, *flags: str) -> None:
    main(["extract", "--source", source, "--input", *map(str, inputs), "--out", str(out), *flags])


def test_validation_is_a_third_split(tmp_path: Path) -> None:
    records = ({"id": f"r{index}", "text": f"It is record {index}. {'word ' * 195}"} for index in range(7000))
    lines, flags = tmp_path / "records.jsonl", ("--id-field", "id", "--held-out", "0.1", "--unit-megabytes", "1")
    lines.write_text("\n".join(map(json.dumps, records)))  # 7 MB: seven work units
    run("jsonl", [lines], tmp_path / "three", *flags, "--validation", "0.2")
    run("jsonl", [lines], tmp_path / "two", *flags)
    three, two = (
        {split: [d.id for d in corpora.read_documents([tmp_path / out], split)] for split in SPLITS}
        for out in ("three", "two")
    )
    assert three["held_out"] == two["held_out"]
    assert set(three["validation"]) == {*two["train"]} - {*three["train"]}
    assert len(three["validation"]) > 1000
    for read in (three, two):
        assert sorted(itertools.chain(*read.values())) == sorted(f"r{index}" for index in range(7000))
    assert len(corpora.contents(tmp_path / "two")) == 7 * 2 + 1  # documents.json


def test_another_job_is_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, out = tmp_path / "a" / "a.txt", tmp_path / "out"
    book.parent.mkdir()
    book.write_text("It is a.")
    with monkeypatch.context() as patch:
        patch.setattr("data_prep.mpi.end_job", interrupted(None, 0))  # killed behind the manifest
        with pytest.raises(KeyboardInterrupt):
            run("books", [book.parent], out)
    assert (out / ".units").exists()
    run("books", [book.parent], out)
    before = corpora.contents(out)
    assert set(before) == {"documents.json", "train-00000.parquet"}
    with pytest.raises(UserError, match=r"held_out is 0\.0 there, 0\.5 was asked for.*give another --out"):
        run("books", [book.parent], out, "--held-out", "0.5")
    book.write_text("It is longer.")
    with pytest.raises(UserError, match=r"holds other documents \(inputs is \[{'bytes': 8"):
        run("books", [book.parent], out)
    book.write_text("It is a.")
    (tmp_path / "c.jsonl").write_text('{"text": "It is c."}')
    with pytest.raises(UserError, match="source is 'books' there"):
        run("jsonl", [tmp_path / "c.jsonl"], out)
    assert corpora.contents(out) == before
    part = out / "train-00000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"train-00000\.parquet is missing or has another size"):
        run("books", [book.parent], out)


def test_a_name_that_is_not_utf_8_is_spelt_so(tmp_path: Path) -> None:
    """Names that are not UTF-8, as in old archives."""
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / f"{name}.txt").write_text("It is a text.")
    run("books", [tmp_path / f"{name}.txt"], tmp_path / "out")
    (document,) = corpora.read_documents([tmp_path / "out"])
    assert (document.id, document.title) == (r"caf\xe9.txt", r"caf\xe9")
    assert read_manifest(tmp_path / "out").inputs[0]["name"] == r"caf\xe9.txt"


GERMAN = "Die Stadt liegt an dem Fluss, und sie ist mit der Bahn von Norden zu erreichen. " * 12
RUSSIAN = "Город стоит на реке, и он был построен в старые времена по плану. " * 12
ENGLISH = "The town lies on a river, and it was built with the plan of an old man. " * 12
_GERMAN_WIKI = next(wiki for wiki in WIKIS if wiki.language == "de")
WIKI = export(replace(_GERMAN_WIKI, page=f"{_GERMAN_WIKI.page}\n\n{GERMAN}"))


@pytest.mark.parametrize(
    ("text", "flags", "said", "looks"),
    [
        (ENGLISH, [], "en (by default)", None),
        (GERMAN, ["--language", "de"], "de (--language)", None),
        (GERMAN, [], "en (by default)", "de, not en;"),
        (RUSSIAN, ["--language", "de"], "de (--language)", "ru"),
        (ENGLISH, ["--language", "ja"], "ja (--language)", "en"),
        (ENGLISH, ["--language", "en-GB"], "en (--language)", None),
        (GERMAN, ["--language", "de-AT"], "de-at (--language)", None),
        (GERMAN, ["--language", "xx"], "xx (--language)", None),
        (GERMAN[:70], [], "en (by default)", None),
        # A German export whose header says "en" kept the captions of its pictures.
        (WIKI, [], "de (from the header)", None),
        (WIKI.replace('xml:lang="de"', 'xml:lang="en"'), [], "en (from the header)", "de, not en"),
    ],
)
def test_the_language_is_said_and_doubted(tmp_path, capsys, text, flags, said, looks):
    (tmp_path / "a.xml").write_text(text)
    source = "wikipedia" if text.startswith("<mediawiki") else "books"
    run(source, [tmp_path / "a.xml"], tmp_path / "out", *flags)
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"extract: language {said}"
    doubts = [line for line in others if line.startswith("warning: the first texts look like ")]
    assert [looks is not None and looks in line for line in doubts] == [True] * (looks is not None)
    assert " documents (0 held out)" in others[-1]


def test_none_held_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("It is a text.")
    run("books", [tmp_path / "a.txt"], tmp_path / "out", "--held-out", "0.001", "--validation", "0.002")
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    for warning, flag in zip(warnings, ("--held-out 0.001", "--validation 0.002"), strict=True):
        assert f"{flag} holds out none of these documents; " in warning
    fraction = float(warnings[0].removesuffix(" or more").rpartition(" ")[2])
    assert split_of("a.txt", fraction - 0.001) == "train"
    run("books", [tmp_path / "a.txt"], tmp_path / "enough", "--held-out", str(fraction))
    assert " documents (1 held out)" in capsys.readouterr().out
    run("books", [tmp_path / "a.txt"], tmp_path / "all", "--held-out", "0.001", "--validation", "0.998")
    assert f"with {fraction} or more" in capsys.readouterr().out, "also if all are documents of validation"
