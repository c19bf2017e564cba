import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from common.files import owned
from common.files.checksums import FileEntry, describe_file
from data_prep.mpi.ledger import Ledger, UnitRecord, describe_differences


@dataclass(frozen=True, kw_only=True)
class Squared(UnitRecord):
    n: int
    files: list[FileEntry] = field(default_factory=list)


def ledger_of(output: Path, **options: Any) -> Ledger[Squared]:
    return Ledger(output, Squared, **options)


def test_differences_are_named() -> None:
    assert describe_differences({"a": 1, "b": 2}, {"a": 1, "b": 3}) == "b is 2 there, 3 was asked for"
    assert describe_differences({"a": 1}, {"a": 1}) == ""


def test_an_unfinished_run_of_other_options_is_refused(tmp_path: Path) -> None:
    ledger_of(tmp_path / "out").begin({"seed": 0})
    ledger_of(tmp_path / "out").begin({"seed": 0})
    ledger_of(tmp_path / "out").write(3, Squared(n=1))
    with pytest.raises(UserError, match=r"seed is 0 there, 1 was asked for.*another --out"):
        ledger_of(tmp_path / "out").begin({"seed": 1})


def test_a_kill_while_they_are_discarded_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_of(tmp_path / "out")
    ledger.begin({"seed": 0})
    (ledger.output / "000003.npy").write_text("of seed 0")
    ledger.write(3, Squared(n=1))
    remove_own = owned.remove_own

    def killed_behind_the_records(directory: Path, own: re.Pattern[str]) -> None:
        if directory == ledger.output:
            raise KeyboardInterrupt
        remove_own(directory, own)

    with monkeypatch.context() as patch:
        patch.setattr(owned, "remove_own", killed_behind_the_records)
        with pytest.raises(KeyboardInterrupt):
            ledger.begin({"seed": 1}, discard_others=True)
    ledger.begin({"seed": 1}, discard_others=True)
    assert [path.name for path in ledger.output.iterdir()] == [".units"]
    assert ledger.finished(3) is None


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write to .*choose another --out"):
        ledger_of(tmp_path / "file").begin({})


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    ledger.begin({})
    (tmp_path / ".shard-00000.arrow.99999.tmp").write_text("half")
    ledger.begin({})
    assert [path.name for path in tmp_path.iterdir()] == [".units"]


def test_a_half_written_record_does_not_count(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    ledger.begin({})
    ledger.write(0, Squared(n=1))
    assert ledger.finished(0) == Squared(n=1)
    (tmp_path / ".units" / "000000.json").write_text(json.dumps({"n": 1})[:-2])
    assert ledger.finished(0) is None


def test_a_run_that_finished_nothing_gives_way_to_another(tmp_path: Path) -> None:
    ledger_of(tmp_path / "out").begin({"seed": 0})
    ledger_of(tmp_path / "out").begin({"seed": 1})
    assert json.loads((tmp_path / "out" / ".units" / "options.json").read_text()) == {"seed": 1}


def test_files_of_a_person_are_never_in_the_way_of_another_run(tmp_path: Path) -> None:
    ledger_of(tmp_path).begin({"seed": 0})
    (tmp_path / "notes.tmp").touch()
    with pytest.raises(UserError, match="unfinished run of other options"):
        ledger_of(tmp_path).begin({"seed": 1})
    assert (tmp_path / "notes.tmp").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_damaged_options_are_one_line(tmp_path: Path, content: str) -> None:
    ledger = ledger_of(tmp_path)
    ledger.begin({"seed": 0})
    ledger.write(0, Squared(n=1))
    (tmp_path / ".units" / "options.json").write_text(content)
    with pytest.raises(UserError, match="unfinished run of other options"):
        ledger.begin({"seed": 0})
    (tmp_path / ".units" / "000000.json").write_text(content)
    assert ledger.finished(0) is None


def test_a_changed_file_is_work_to_be_done_again(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path / "out", content=True)
    ledger.begin({})
    (tmp_path / "out" / "000000.npy").write_text("abc")
    ledger.write(0, Squared(n=1, files=[describe_file(tmp_path / "out" / "000000.npy")]))
    assert ledger.finished(0) is not None
    (tmp_path / "out" / "000000.npy").write_text("abd")
    assert ledger.finished(0) is None
    assert ledger_of(tmp_path / "out").finished(0) is not None
    ledger.write(0, Squared(n=1, files=[FileEntry("000000.npy", 3, "")]))
    assert ledger.finished(0) is None


@pytest.mark.parametrize("record", ['{"n": "1"}', '{"documents": -1}', '{"files": [{"name": "a"}]}', '{"files": {}}'])
def test_a_record_of_other_types_does_not_count(tmp_path: Path, record: str) -> None:
    ledger = ledger_of(tmp_path)
    ledger.begin({})
    (ledger.directory / "000000.json").write_text(record)
    assert ledger.finished(0) is None
