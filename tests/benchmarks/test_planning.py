"""The benchmark of planning: it works at a small size, and its page says what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks import planning

RESULTS = sorted((Path(planning.__file__).parent / "results").glob("planning*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_page_of_results_says_what_was_measured(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8").endswith(planning.markdown(result) + "\n")
    assert result["planning"] == sorted(r["planning"] for r in result["rounds"])[1]


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planning.main(["--files", "30", "--out", str(tmp_path / "small")]) == 0
    result = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    assert result["files"] == 30
    assert result["manifest_bytes"] > 30 * 32  # a fingerprint each
    assert "30 files" in capsys.readouterr().out
    assert planning.main(["--files", "0"]) == 2
    assert capsys.readouterr().err == "error: --files is 0; give 1 or more\n"
