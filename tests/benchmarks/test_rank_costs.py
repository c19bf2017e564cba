"""The parts of the processor time that two ranks take more than one."""

from pathlib import Path

import pytest

from benchmarks import rank_costs


def test_the_parts_add_up_to_the_difference() -> None:
    way = {"one": 10.0, "apart": 11.5, "together": 13.0, "two": 15.0, "start_one": 1.0, "start_two": 2.2}
    found = rank_costs.costs([way])
    assert found["own first words"] == pytest.approx(11.5 - 10.0 - 1.0)
    assert found["second core busy"] == pytest.approx(1.5)
    assert found["MPI, rest"] == pytest.approx((15.0 - 2.2) - (13.0 - 2 * 1.0))
    parts = ("start", "own first words", "second core busy", "MPI, rest")
    assert sum(found[part] for part in parts) == pytest.approx(way["two"] - way["one"])


def test_too_few_books_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "only.txt").write_text("One book.")
    assert rank_costs.main(["--books", str(tmp_path), "--vocab", "none.model"]) == 2
    assert "give a directory of two or more" in capsys.readouterr().err
