"""Real loss curves of more than 10,000 steps raise no alarm, and the page says what the detector makes of them."""

import json
from pathlib import Path

from benchmarks import spikes as benchmark

PAGE = Path(benchmark.__file__).parent / "results" / "spikes"


def test_real_curves_raise_no_alarm_and_added_spikes_do() -> None:
    result = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    assert PAGE.with_suffix(".md").read_text(encoding="utf-8").endswith(benchmark.markdown(result) + "\n")
    assert max(len(curve["losses"]) for curve in result["curves"]) >= 10_000
    for curve, recorded in zip(result["curves"], result["results"], strict=True):
        steps = benchmark.values(curve)
        assert benchmark.judge(steps) == recorded["as_it_is"]
        assert recorded["as_it_is"]["alarms"] == []
        (large,) = [one for one in recorded["added"] if (one["rise"], one["length"]) == (1.0, 10)]
        assert benchmark.find_added(steps, 1.0, 10) == large
        assert large["found"] >= 0.98
