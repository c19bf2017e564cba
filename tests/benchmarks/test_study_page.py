"""The page of a study: its forecast, the gain of a doubling, and the committed pages."""

import json
from pathlib import Path

import pytest

from benchmarks.study import page


def test_the_forecast_goes_on_with_the_gain_of_the_last_doubling() -> None:
    def curve(*reached: float) -> list[dict[str, float]]:
        return [{"tokens": 1e6 * 2**n, "seconds": 3600.0 * 2**n, "mlm": mlm} for n, mlm in enumerate(reached)]

    rows = page.forecast_table(
        {"a": curve(0, 15, 25), "b": curve(31, 30.5), "c": curve(36), "d": curve(5, 6), "e": curve(20)}
    ).splitlines()[4:]
    assert rows == [
        "| a | +10.0 points | 6 million, 5.7 h | 8 million, 8.0 h |",
        "| b | -0.5 points | reached | unknown |",
        "| c | unknown | reached | reached |",
        "| d | +1.0 points | unknown | unknown |",
        "| e | unknown | unknown | unknown |",
    ]


def test_the_gain_of_a_doubling_is_the_slope_over_the_checkpoints() -> None:
    fixed = {"task": "rte", "metric": "accuracy", "examples": 9, "settings": "", "majority": 50.0, "core_hours": 1.0}
    points = [
        {**fixed, "tokens": 1e6 * 2**n, "random": 50.0, "trained": 50.0 + gain, "gain": (gain - 1, gain + 1)}
        for n, gain in enumerate((1.0, 3.0, 8.0))
    ]
    lines = page.by_tokens_table(points).splitlines()
    assert "on rte, accuracy" in lines[0]
    assert lines[4:] == [
        "| 1.0 million | 51.0 | +1.0 (+0.0 to +2.0) |",
        "| 2.0 million | 53.0 | +3.0 (+2.0 to +4.0) |",
        "| 4.0 million | 58.0 | +8.0 (+7.0 to +9.0) |",
        "",
        "By least squares, a doubling of the tokens brought +3.5 points.",
    ]


RESULTS = sorted((Path(page.__file__).parents[1] / "results" / "study").rglob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_page_of_results_is_that_of_its_figures(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page.markdown(record)
