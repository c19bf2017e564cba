"""The benchmark of batches: it works at a small size, and its page is made from what was measured."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import batches

RESULTS = sorted((Path(batches.__file__).parent / "results").glob("batches*.json"))


def test_a_small_run(corpus: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(corpus.held_out), "--rows", "64", "--rounds", "2", "--out", str(tmp_path / "small")]
    assert batches.main(words) == 0
    result = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    assert [one["objective"] for one in result["measurements"]] == ["sop", "nsp"]
    for one in result["measurements"]:
        assert one["best_rows_per_second"] >= one["rows_per_second"] > 0
    assert "| nsp |" in capsys.readouterr().out
    assert batches.main([*words[:3], "0"]) == 2
    assert capsys.readouterr().err == "error: --rows and --rounds must be 1 or more\n"
