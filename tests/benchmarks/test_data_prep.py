"""The benchmark of data preparation: pages that say what was measured, mistakes in a line."""

from pathlib import Path

import pytest

from benchmarks import data_prep as benchmark

RESULTS = sorted((Path(benchmark.__file__).parent / "results").glob("data_prep_*.json"))


def test_a_job_that_fails_is_a_mistake_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--books", str(tmp_path / "nowhere"), "--wikipedia", str(tmp_path), "--vocab", str(tmp_path / "v.model")]
    assert benchmark.main([*words, "--rounds", "0"]) == 2
    assert benchmark.main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: --rounds is 0")
    assert "nowhere" in lines[1]
    assert len(lines) == 2
