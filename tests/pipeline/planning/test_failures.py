"""The save interval: against the least of an exact cost, found by trying, and against numbers worked out by hand."""

import math

import numpy as np
import pytest

from common.errors import UserError
from pipeline import plan
from pipeline.plan import parse, resolve
from pipeline.planning.plan import report
from pipeline.planning.time import Failures, best_interval
from tests.pipeline.conftest import REPOSITORY

WORDS = ["--model", "albert-xxlarge", "--deepspeed_config", str(REPOSITORY / "ds_configs" / "xxlarge.json")]
WORDS += ["--nodes", "8", "--gpu", "h100"]


def seconds_per_second(interval: float, save: float, mean: float, restart: float) -> float:
    """Time for a second of new steps if failures are a Poisson process, also during saves and restarts (Daly)."""
    return mean * math.exp(restart / mean) * math.expm1((interval + save) / mean) / interval


@pytest.mark.parametrize(("save", "mean"), [(3.0, 900_000.0), (60.0, 36_000.0), (300.0, 7_200.0), (600.0, 3_600.0)])
def test_no_other_interval_costs_less(save: float, mean: float) -> None:
    found = best_interval(save, mean)
    tried = np.geomspace(found / 20, found * 20, 4001)
    costs = [seconds_per_second(interval, save, mean, restart=100.0) for interval in tried]
    assert found == pytest.approx(tried[int(np.argmin(costs))], rel=0.02)
    assert seconds_per_second(found, save, mean, 100.0) <= 1.0001 * min(costs)
    if save < mean / 1000:
        assert found == pytest.approx(math.sqrt(2 * save * mean), rel=0.05), "Young's"


def test_saves_that_take_longer_than_nodes_live() -> None:
    assert best_interval(100.0, 50.0) == 50.0
    assert best_interval(100.0, 20.0) == 20.0


def test_the_plan_of_failures_by_hand() -> None:
    # 10 nodes, each every 1000 hours: one in 100 hours. Young: sqrt(2 * 20 s * 360,000 s) = 3,795 s; Daly: 3,781 s.
    # Half of 3,780 s and a minute are lost in 360,000 s; 20 s of 3,800 s go to saves; 72,000 steps take 200 hours.
    failures = Failures(1000.0, 10, 20.0, 60.0)
    assert failures.describe(step_seconds=10.0, steps=72_000, checkpoint_bytes=1.0) == [
        "a node fails every 1,000 hours: one of 10 every 100.0 hours, 2.00 times in this run",
        "save every 378 steps, 1 h 3 min (Young/Daly): a save takes 20.0 s (given), all saves 0.53 % of the time",
        "a lost node costs 31 min 30 s of steps on average and 1 min 0 s of restart and warm-up, "
        "0.54 % of the time in all",
    ]


def test_nodes_that_never_fail_need_one_save() -> None:
    never = Failures(1e306, 1)  # infinite seconds
    first, save, _ = never.describe(step_seconds=10.0, steps=100, checkpoint_bytes=3e9)
    assert first.endswith(" 0.00 times in this run")
    assert save.startswith("save every 100 steps, 16 min 40 s (Young/Daly): a save takes 3.0 s (assumed: 1 GB/s)")


def test_the_plan_prints_it() -> None:
    printed = report(resolve(parse([*WORDS, "--mtbf-hours", "2000", "--save-seconds", "30"])))
    assert "a node fails every 2,000 hours: one of 8 every 250.0 hours, 0.14 times in this run" in printed
    assert "save every 7,439 steps, 2 h 2 min (Young/Daly): a save takes 30.0 s" in printed
    assert "a lost node costs 1 h 1 min of steps on average and 3 min 0 s of restart and warm-up" in printed
    assumed = report(resolve(parse([*WORDS, "--mtbf-hours", "2000"])))
    assert "a save takes 2.7 s (assumed: 1 GB/s)" in assumed  # 12 bytes of each of 223 million parameters
    assert "Young" not in report(resolve(parse(WORDS)))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mtbf-hours", "0"], "--mtbf-hours: 0 is not above 0"),
        (["--mtbf-hours", "nan"], "--mtbf-hours: nan is not above 0"),
        (["--save-seconds", "3"], "no effect without --mtbf-hours"),
        (["--mtbf-hours", "5", "--restart-seconds", "inf"], "--restart-seconds: inf is not above 0"),
    ],
)
def test_mistakes_are_one_line(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main([*WORDS, *more]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(UserError, match=message):
        raise UserError(error)
