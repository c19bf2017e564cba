"""The detector of spikes on the curves of two real runs: no false alarm, and large spikes that were added are found.

`real_curves.json` has hundredths of the losses, and of the logarithms of the gradient norms, of every step.
"""

import json
import math
import random
import statistics
from pathlib import Path

import pytest

from pipeline.training import spikes
from pipeline.training.spikes import SpikeState

CURVES = json.loads(Path(__file__).with_name("real_curves.json").read_text(encoding="utf-8"))
LENGTH = 10
"""Of the added spikes, in steps."""


def alarms(steps: list[tuple[float, float]]) -> list[int]:
    """The steps of alarms. steps: loss and gradient norm of each."""
    detector = SpikeState()
    found = [detector.add(step, loss, norm) for step, (loss, norm) in enumerate(steps, 1)]
    return [spike.last_step for spike in found if spike is not None]


@pytest.mark.parametrize("name", CURVES)
def test_real_curves_raise_no_alarm_and_doubled_losses_do(name: str) -> None:
    losses, norms = CURVES[name]["losses"], CURVES[name]["log_norms"]
    steps = [(loss / 100, math.exp(norm / 100)) for loss, norm in zip(losses, norms, strict=True)]
    assert len(steps) > 6000
    assert alarms(steps) == []
    added = statistics.median(loss for loss, _ in steps)
    places = random.Random(0).sample(range(spikes.WINDOW, len(steps) - LENGTH), 50)
    found = 0
    for place in places:
        spoilt = [(loss + added, norm) for loss, norm in steps[place : place + LENGTH]]
        found += bool(alarms([*steps[place - spikes.WINDOW : place], *spoilt]))
    assert found >= 49
