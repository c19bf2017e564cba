"""The benchmark of what a step waits for: it works at a small size, and its page says what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks import between_steps

RESULTS = sorted((Path(between_steps.__file__).parent / "results").glob("between_steps*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_page_of_results_says_what_was_measured(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8").endswith(between_steps.markdown(result) + "\n")
    assert result["extrapolated"] == pytest.approx(between_steps.extrapolate(result["agreements"]))


def test_a_line_through_the_medians_gives_more_ranks() -> None:
    measured = [{"ranks": ranks, "at_once": 0.002 + 0.0001 * ranks, "ahead": 0.0} for ranks in (2, 4, 16)]
    assert between_steps.extrapolate(measured) == pytest.approx({"64": 0.0084, "512": 0.0532})
    assert between_steps.extrapolate(measured[:1]) == {}


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(between_steps, "MODELS", ("albert-tiny",))
    monkeypatch.setattr(between_steps, "COMPUTING", 0.001)
    assert between_steps.main(["--ranks", "2", "3", "--rounds", "3", "--out", str(tmp_path / "small")]) == 0
    result = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    assert [one["ranks"] for one in result["agreements"]] == [2, 3]
    assert all(one["at_once"] > 0 for one in result["agreements"])
    (gradients,) = result["gradients"]
    assert 0 <= gradients["early"] < 1
    assert "| albert-tiny |" in capsys.readouterr().out
    assert between_steps.main(["--rounds", "0"]) == 2
    assert capsys.readouterr().err == "error: --ranks and --rounds must be 1 or more\n"
