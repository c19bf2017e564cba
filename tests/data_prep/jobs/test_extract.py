"""`extract`: equal bytes on any number of ranks and after a kill, the split, and mistakes in one line."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.corpus.documents import DocumentsManifest, PartFile, part_name, read_manifest
from data_prep.jobs import extract
from tests.data_prep import corpora


def run(source: str, inputs: Sequence[Path], out: Path, *flags: str) -> None:
    main(["extract", "--source", source, "--input", *map(str, inputs), "--out", str(out), *flags])


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Writes 7 MB of records: seven work units of one megabyte."""
    path = tmp_path / "records.jsonl"
    with path.open("w") as file:
        for index in range(7000):
            file.write(json.dumps({"id": f"r{index}", "text": f"It is record {index}. " + "word " * 195}) + "\n")
    return path


SMALL_UNITS = ("--id-field", "id", "--held-out", "0.1", "--unit-megabytes", "1")


@pytest.mark.slow
def test_any_number_of_ranks_writes_the_same_bytes(lines: Path, tmp_path: Path) -> None:
    run("jsonl", [lines], tmp_path / "alone", *SMALL_UNITS)
    command = ["-m", "data_prep", "extract", "--source", "jsonl", "--input", lines, "--out", tmp_path / "three"]
    result = corpora.run([*command, *SMALL_UNITS], ranks=3)
    assert result.returncode == 0, result.stderr
    assert contents(tmp_path / "three") == contents(tmp_path / "alone")
    assert len(contents(tmp_path / "alone")) == 7 * 2 + 2  # README.md and documents.json
    read = [d.id for split in ("train", "held_out") for d in corpora.read_documents([tmp_path / "alone"], split)]
    assert sorted(read) == sorted(f"r{index}" for index in range(7000))


def test_another_job_is_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, out = tmp_path / "a" / "a.txt", tmp_path / "out"
    book.parent.mkdir()
    book.write_text("It is a.")
    with monkeypatch.context() as patch:
        patch.setattr("data_prep.mpi.executor.end_job", interrupt)  # killed behind the manifest
        with pytest.raises(KeyboardInterrupt):
            run("books", [book.parent], out)
    assert (out / ".units").exists()
    run("books", [book.parent], out)
    before = contents(out)
    assert set(before) == {"README.md", "documents.json", "train-00000.parquet"}
    with pytest.raises(UserError, match=r"held_out is 0\.0 there, 0\.5 was asked for.*give another --out"):
        run("books", [book.parent], out, "--held-out", "0.5")
    book.write_text("It is b.")  # another content of the same name and size
    with pytest.raises(UserError, match=r"holds other documents \(inputs is \[{'bytes': 8, 'fingerprint'"):
        run("books", [book.parent], out)
    book.write_text("It is a.")
    (tmp_path / "c.jsonl").write_text('{"text": "It is c."}')
    with pytest.raises(UserError, match="source is 'books' there"):
        run("jsonl", [tmp_path / "c.jsonl"], out)
    assert contents(out) == before
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


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--source", "books", "--input", "nothing"], "nothing does not exist"),
        (["--source", "wikipedia", "--input", "a.txt"], r"a\.txt is no MediaWiki export"),
        (["--source", "jsonl", "--input", "a.txt"], r"a\.txt, line 1: not JSON"),
        (["--source", "books", "--input", "noise.txt"], r"--input holds no document \(skipped 1 not a text file\)"),
        (["--source", "books", "--input", "a.txt", "--held-out", "1"], "--held-out: 1 is not at least 0 and below 1"),
        (["--source", "books", "--input", "a.txt", "--unit-megabytes", "0"], "--unit-megabytes: 0 is not at least 1"),
        (["--source", "books", "--input", "a.txt", "--id-field", "x"], "--id-field means nothing to --source books"),
        (["--source", "books", "--input", "large.txt"], r"large\.txt has 65 MB, more than one book; split it"),
        (
            ["--source", "jsonl", "--input", "a.txt", "--records-per-document", "0"],
            "document: 0 is not at least 1",
        ),
        (["--source", "papers", "--input", "a.txt"], "papers"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("It is a text.")
    (tmp_path / "noise.txt").write_bytes(bytes(100))
    (tmp_path / "large.txt").write_bytes(bytes(65 << 20))
    with pytest.raises(UserError, match=message):
        main(["extract", *flags, "--out", "out"])
    assert not list((tmp_path / "out").glob("*"))


def test_files_are_listed_in_the_order_of_their_units() -> None:
    def record(index: int) -> extract.ExtractRecord:
        files = [PartFile(part_name(split, index), 1, "", 1) for split in ("train", "held_out")]
        return extract.ExtractRecord(counts={}, skipped={}, raw_bytes=1, files=files)

    manifest = DocumentsManifest("jsonl", [], {}, counts={}, raw_bytes=0, skipped={})
    extract.add_up(manifest, [record(99_999), record(100_000)])
    assert manifest.raw_bytes == 2
    expected = ["train-99999", "train-100000", "held_out-99999", "held_out-100000"]
    assert [file.name.removesuffix(".parquet") for file in manifest.files] == expected


def test_datasets_opens_the_directory_with_its_splits(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several work units, each with a file of each split; of the smallest fraction some or all files are empty."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    out = tmp_path / "documents"
    flags = ("--id-field", "id", "--unit-megabytes", "1", "--held-out", "0.0001")
    run("jsonl", [lines], out, *flags)
    opened = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert set(opened) == {"train", "held_out"}
    for split, found in opened.items():
        expected = [(document.id, document.text) for document in corpora.read_documents([out], split)]
        assert list(zip(found["id"], found["text"])) == expected
        assert len(expected) == read_manifest(out).counts[split].documents
    run("jsonl", [lines], out, *flags)  # nothing to do, with the card in the directory


def test_parts_of_few_documents_are_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("data_prep.corpus.documents.PART_CHARACTERS", 100)
    (tmp_path / "in").mkdir()
    for name in "abc":
        paragraphs = [f"It is paragraph {number} of {name}." for number in range(400)]
        (tmp_path / "in" / f"{name}.txt").write_text("\n\n".join(paragraphs))
    run("text", [tmp_path / "in"], tmp_path / "whole", "--held-out", "0.0001")
    assert "add --held-out-by part to hold out parts" in capsys.readouterr().out
    assert read_manifest(tmp_path / "whole").counts["held_out"].documents == 0
    flags = ("--held-out", "0.1", "--held-out-by", "part")
    run("text", [tmp_path / "in"], tmp_path / "parts", *flags)
    train, held_out = (corpora.read_documents([tmp_path / "parts"], split) for split in ("train", "held_out"))
    whole = corpora.read_documents([tmp_path / "whole"])
    lines = [line for document in whole for line in document.text.split("\n")]
    assert sorted(line for document in train + held_out for line in document.text.split("\n")) == sorted(lines)
    share = sum(len(document.text) for document in held_out) / sum(len(document.text) for document in whole)
    assert 0.06 < share < 0.14
    assert len({document.id for document in train + held_out}) == len(train + held_out)
    assert {document.id.partition("#")[0] for document in held_out} == {"a.txt", "b.txt", "c.txt"}
    with pytest.raises(UserError, match="held_out_by is 'part' there"):
        run("text", [tmp_path / "in"], tmp_path / "parts", "--held-out", "0.1")
