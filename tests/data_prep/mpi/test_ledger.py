"""The ledger: which units count as finished, and what becomes of other runs and of files of a person."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from common.errors import UserError
from common.files.checksums import FileEntry, describe_file
from data_prep.mpi.ledger import Ledger, UnitRecord, describe_differences, discard_work


@dataclass(frozen=True, kw_only=True)
class Squared(UnitRecord):
    n: int
    files: list[FileEntry] = field(default_factory=list)


def begun(output: Path, options: dict[str, int], is_scratch: bool = False) -> Ledger[Squared]:
    ledger = Ledger(output, Squared, is_scratch)
    ledger.begin(options)
    return ledger


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_differences_are_named_and_shortened() -> None:
    recorded = {"a": 1, "b": 2, "c": "x" * 1000}
    described = describe_differences(recorded, {"a": 1, "b": 3})
    assert described.startswith("b is 2 there, 3 was asked for; c is 'xxx")
    assert len(described) < 120
    assert describe_differences(recorded, recorded) == ""


def test_an_unfinished_run_goes_on_and_one_of_other_options_is_refused(tmp_path: Path) -> None:
    begun(tmp_path, {"seed": 0}).write(3, Squared(n=1))
    assert begun(tmp_path, {"seed": 0}).finished(3) == Squared(n=1)
    with pytest.raises(UserError, match=r"seed is 0 there, 1 was asked for.*another --out"):
        begun(tmp_path, {"seed": 1})
    with pytest.raises(UserError, match="is not empty and holds no run to continue"):
        begun(tmp_path / ".units", {"seed": 0})


def test_a_run_that_finished_nothing_gives_way_to_another(tmp_path: Path) -> None:
    begun(tmp_path / "out", {"seed": 0})
    (tmp_path / "out" / ".shard-00000.arrow.99999.tmp").write_text("half")
    begun(tmp_path / "out", {"seed": 1})
    assert json.loads((tmp_path / "out" / ".units" / "options.json").read_text())["options"] == {"seed": 1}
    assert names(tmp_path / "out") == [".units"]
    (tmp_path / "out" / "notes.tmp").touch()  # a person's
    begun(tmp_path / "out", {"seed": 0})
    assert names(tmp_path / "out") == [".units", "notes.tmp"]


def test_intermediate_results_of_other_options_are_discarded(tmp_path: Path) -> None:
    ledger = begun(tmp_path / "out", {"seed": 0}, is_scratch=True)
    (ledger.output / "000003.npy").write_text("of seed 0")
    ledger.write(3, Squared(n=1))
    ledger.begin({"seed": 1})
    assert names(ledger.output) == [".units"]
    assert ledger.finished(3) is None
    discard_work(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_that_no_job_made_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    discard_work(tmp_path)
    begun(tmp_path / "out", {})
    (tmp_path / "link").symlink_to(tmp_path / "out")
    discard_work(tmp_path / "link")
    (tmp_path / "theirs" / ".units").mkdir(parents=True)
    (tmp_path / "theirs" / ".units" / "options.json").write_text("{}")
    discard_work(tmp_path / "theirs")
    with pytest.raises(UserError, match="did not make it"):
        begun(tmp_path / "theirs" / "sentences", {}, is_scratch=True)
    assert (tmp_path / "theirs" / ".units" / "options.json").read_text() == "{}"
    assert (tmp_path / "out").exists()
    assert (tmp_path / "notes").exists()


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write to .*choose another --out"):
        begun(tmp_path / "file", {})


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_damaged_options_are_one_line(tmp_path: Path, content: str) -> None:
    begun(tmp_path, {"seed": 0}).write(0, Squared(n=1))
    (tmp_path / ".units" / "options.json").write_text(content)
    with pytest.raises(UserError, match="holds no run to continue"):
        begun(tmp_path, {"seed": 0})
    assert (tmp_path / ".units" / "000000.json").exists()


@pytest.mark.parametrize(
    "record", ["", '{"n": 1', '{"n": "1"}', '{"n": 1, "files": [{"name": "a"}]}', '{"n": 1, "files": {}}']
)
def test_a_damaged_record_does_not_count(tmp_path: Path, record: str) -> None:
    ledger = begun(tmp_path, {})
    (ledger.directory / "000000.json").write_text(record)
    assert ledger.finished(0) is None


def test_a_file_of_another_size_is_work_to_be_done_again(tmp_path: Path) -> None:
    ledger, path = begun(tmp_path / "out", {}), tmp_path / "out" / "000000.npy"
    path.write_text("abc")
    ledger.write(0, Squared(n=1, files=[describe_file(path)]))
    assert ledger.finished(0) is not None
    path.write_text("abcd")
    assert ledger.finished(0) is None
    path.unlink()
    assert ledger.finished(0) is None


@pytest.mark.parametrize("name", ["../victim", "link"])
def test_a_record_that_names_a_path_or_a_link_does_not_count_and_nothing_there_is_removed(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "victim").write_text("x")
    ledger, record = begun(tmp_path / "out", {}), Squared(n=1, files=[FileEntry(name, 1, "")])
    (tmp_path / "out" / "link").symlink_to(tmp_path / "victim")
    ledger.write(0, record)
    assert ledger.finished(0) is None
    ledger.discard([record])
    assert (tmp_path / "victim").exists()
    assert names(tmp_path / "out") == ["link"]
