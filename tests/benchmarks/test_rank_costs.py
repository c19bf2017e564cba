"""The parts of the processor time that two ranks take more than one."""

import json
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


def test_speed_ups() -> None:
    ways = {"one": 10.0, "apart": 11.5, "together": 13.0, "two": 15.0, "start_one": 1.0, "start_two": 2.4}
    walls = {"one": 10.0, "apart": 12.0, "together": 6.5, "two": 6.4, "start_one": 1.0, "start_two": 1.4}
    first = ways | {f"wall {way}": seconds for way, seconds in walls.items()}
    slower = first | {f"wall {way}": 3 * seconds for way, seconds in walls.items()}
    found = rank_costs.speed_ups([first, slower])
    assert found["two ranks, wall"] == pytest.approx(10 / 6.4)
    assert found["without starts"] == pytest.approx(9 / 5)
    assert found["two processes, wall"] == pytest.approx(10 / 5.5)
    # A rank of two starts in 1.2 s, does 9 / 2 s of the work, and half of the 0.5 s that the second one's words take.
    assert found["2 ranks, by processor time"] == pytest.approx(10 / (1.2 + 4.75))
    assert found["8 without starts"] == pytest.approx(9 / ((9 + 7 * 0.5) / 8))


def test_the_page_says_what_was_measured() -> None:
    path = Path(rank_costs.__file__).parent / "results" / "rank_costs.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8").endswith(rank_costs.markdown(result) + "\n")
