"""The ledger: which units count as finished, and what becomes of other runs and of files of a person."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from common.errors import UserError
from common.files.checksums import FileEntry, describe_file
from data_prep.mpi import UNITS, Ledger, UnitRecord, begin_job, end_job


@dataclass(frozen=True, kw_only=True)
class Squared(UnitRecord):
    n: int
    files: list[FileEntry] = field(default_factory=list)


def begun(output: Path, options: dict[str, int]) -> Ledger[Squared]:
    output.mkdir(exist_ok=True)
    begin_job(output, options)
    return Ledger(output, Squared, output / UNITS)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_run_that_finished_nothing_gives_way_to_another(tmp_path: Path) -> None:
    begun(tmp_path / "out", {"seed": 0})
    (tmp_path / "out" / UNITS / "pairs").mkdir()  # intermediate results of the other options
    (tmp_path / "out" / ".shard-00000.arrow.99999.tmp").write_text("half")
    (tmp_path / "out" / "notes.tmp").touch()  # a person's
    begun(tmp_path / "out", {"seed": 1})
    assert json.loads((tmp_path / "out" / UNITS / "options.json").read_text())["options"] == {"seed": 1}
    assert names(tmp_path / "out") == [UNITS, "notes.tmp"]
    assert names(tmp_path / "out" / UNITS) == ["options.json"]


def test_a_directory_that_no_job_made_is_never_deleted(tmp_path: Path) -> None:
    end_job(tmp_path)
    (tmp_path / "theirs" / UNITS).mkdir(parents=True)
    (tmp_path / "theirs" / UNITS / "options.json").write_text("{}")
    end_job(tmp_path / "theirs")
    with pytest.raises(UserError, match="holds no run to continue"):
        begun(tmp_path / "theirs", {})
    begun(tmp_path / "out", {})
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / UNITS).symlink_to(tmp_path / "out" / UNITS)
    end_job(tmp_path / "linked")
    assert (tmp_path / "theirs" / UNITS / "options.json").read_text() == "{}"
    assert (tmp_path / "out" / UNITS / "options.json").exists()


def test_a_file_of_another_size_is_work_to_be_done_again(tmp_path: Path) -> None:
    ledger, path = begun(tmp_path / "out", {}), tmp_path / "out" / "000000.npy"
    path.write_text("abc")
    record = Squared(n=1, files=[describe_file(path)])
    ledger.write(0, record)
    assert ledger.read_finished(1) == {0: record}
    path.write_text("abcd")
    assert ledger.read_finished(1) == {}
    end_job(tmp_path / "out", record.files)
    assert names(tmp_path / "out") == []


def test_damage_is_one_line_or_work_to_be_done_again(tmp_path: Path) -> None:
    ledger = begun(tmp_path, {"seed": 0})
    for record in ('{"n": 1', '{"n": "1"}', '{"n": 1, "files": [{"name": "a"}]}'):
        (tmp_path / UNITS / "000000.json").write_text(record)
        assert ledger.read_finished(1) == {}
    for content in ("{", "{}"):
        (tmp_path / UNITS / "options.json").write_text(content)
        with pytest.raises(UserError, match="holds no run to continue"):
            begun(tmp_path, {"seed": 0})
    assert (tmp_path / UNITS / "000000.json").exists()
