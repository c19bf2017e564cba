"""The detector of spikes on made-up numbers, and what follows from a spike."""

import json
import math
import random
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pytest

from common.errors import UserError
from common.files.json_files import check_as
from pipeline.checkpoint import retention
from pipeline.data.sampler import batch_of_step
from pipeline.training import rollback, spikes
from pipeline.training.rollback import Rollback
from pipeline.training.spikes import Spike, SpikeState

USUAL = 300


def noise(steps: int, seed: int = 0) -> list[tuple[float, float]]:
    """Losses around 2.07 with a deviation of 0.05, and gradient norms around 1."""
    draw = random.Random(seed)
    return [(draw.gauss(2.07, 0.05), math.exp(draw.gauss(0.0, 0.2))) for _ in range(steps)]


def found(values: list[tuple[float, float]]) -> list[Spike]:
    detector = SpikeState()
    return [spike for step, pair in enumerate(values, 1) if (spike := detector.add(step, *pair)) is not None]


@pytest.mark.parametrize(
    ("losses", "norm", "last_step"),
    [
        ([5.9] * 10, 8.0, 3),  # 16 + 8 - 4 of evidence in each step
        ([5.9] * 10, math.inf, 4),  # 16 - 4: the norm of an fp16 overflow says nothing
        ([math.nan] * 10, math.nan, 4),
        ([5.9, 2.07, 5.9, 2.07, 5.9, 5.9, 5.9, 5.9], 1.0, 7),  # 12, 8, 20, 16, 28, 40, 52
        ([2.07 + 0.35] * 40, 1.0, None),  # about 7 deviations, 3 of evidence in each step
    ],
)
def test_a_spike_is_found_and_dated(losses: list[float], norm: float, last_step: int | None) -> None:
    (spike,) = found(noise(USUAL) + [(loss, norm) for loss in losses])
    assert spike.first_step == USUAL + 1
    if last_step is not None:
        assert spike.last_step == USUAL + last_step
    assert spike.usual_loss == pytest.approx(2.07, abs=0.02)
    assert spike.loss == (None if math.isnan(losses[0]) else max(losses[: spike.last_step - USUAL]))
    assert "the loss has risen from 2.0" in str(spike)


@pytest.mark.parametrize(
    "values",
    [
        noise(10_000),
        [*noise(USUAL), (50.0, 100.0), *noise(50, seed=1)],  # one hard batch
        [*noise(USUAL), (5.9, 8.0), (5.9, 8.0), *noise(50, seed=1)],
        [*noise(USUAL), *((loss, 30 * norm) for loss, norm in noise(100, seed=1))],  # the gradient alone
        [(10 - step / 50, 1.0) for step in range(400)],  # a falling loss
        [(2.0 if step < USUAL else 2.07, 1.0) for step in range(400)],  # 3.5 % more, of a loss without noise
        [(2.0, 1.0)] * (spikes.MIN_STEPS - 5) + [(9.0, 9.0)] * 5,  # too early to judge
    ],
)
def test_what_is_no_spike(values: list[tuple[float, float]]) -> None:
    assert found(values) == []


def test_after_a_spike_the_detector_begins_anew() -> None:
    """A loss that stays high is one spike; a second spike after that is another one."""
    higher = [(loss + 2, norm) for loss, norm in noise(USUAL)]
    first, second = found([*noise(USUAL), *higher, *[(9.0, 5.0)] * 5])
    assert (first.first_step, second.first_step) == (USUAL + 1, 2 * USUAL + 1)


def test_a_detector_decides_the_same_after_every_resume() -> None:
    values = [*noise(100), *[(5.9, 3.0)] * 4, *noise(100, seed=1), *[(4.0, 2.0)] * 5]
    whole = found(values)
    assert len(whole) == 2
    state, resumed = SpikeState(), []
    for step, pair in enumerate(values, 1):
        state = check_as(json.loads(json.dumps(asdict(state))), SpikeState, "state.json", "")
        if (spike := state.add(step, *pair)) is not None:
            resumed.append(spike)
    assert resumed == whole


def recorded(*passed_over: tuple[int, int]) -> list[Rollback]:
    rest: dict[str, Any] = {"loss": 5.9, "usual_loss": 2.0, "grad_norm": None, "usual_grad_norm": None}
    return [Rollback(passed_over=one, first_step=1, last_step=1, **rest) for one in passed_over]


def test_steps_train_on_the_batches_that_are_not_passed_over() -> None:
    ranges = rollback.skipped_batches(recorded((30, 40), (10, 20), (15, 22), (40, 41)))
    assert ranges == ((10, 22), (30, 41))
    trained = [batch for batch in range(100) if not (10 <= batch < 22 or 30 <= batch < 41)]
    assert [batch_of_step(step, ranges) for step in range(len(trained))] == trained


def test_a_second_spike_passes_over_what_its_steps_have_read() -> None:
    earlier = recorded((10, 20))
    spike = Spike(first_step=13, last_step=15, loss=5.9, usual_loss=2.0, grad_norm=None, usual_grad_norm=None)
    made = rollback._rollback_of(spike, earlier)
    first = 13 - 1 - rollback.MARGIN
    assert made.passed_over == (first, 25), "steps 5 to 15 have read batches 4 to 9 and 20 to 24"
    ranges = rollback.skipped_batches([*earlier, made])
    assert [batch_of_step(step, ranges) for step in range(first + 1)] == [*range(first), 25]


def test_the_record_is_checked(tmp_path: Any) -> None:
    assert rollback.read(tmp_path) == []
    path = tmp_path / rollback.ROLLBACKS
    path.write_text(json.dumps({"rollbacks": [asdict(one) for one in recorded((10, 20), (30, 40))]}))
    assert rollback.read(tmp_path) == recorded((10, 20), (30, 40))
    path.write_text(json.dumps({"rollbacks": [asdict(one) for one in recorded((10, 20), (40, 40))]}))
    with pytest.raises(UserError, match=r"rollbacks\.1\.passed_over: 40 is not below 40"):
        rollback.read(tmp_path)


def test_a_checkpoint_must_agree_with_the_record(tmp_path: Any) -> None:
    """The steps from 60 - 1 - 8 on were undone by the second rollback."""
    made = [*recorded((10, 20)), replace(recorded((60, 70))[0], first_step=60)]
    for step, before in ((51, 1), (51, 2), (90, 2)):
        rollback.check(tmp_path, made, step, before)
    with pytest.raises(UserError, match=r"step 52 was made after 1 rollback, and .* has others; restore"):
        rollback.check(tmp_path, made, 52, 1)
    with pytest.raises(UserError, match="was made after 3 rollbacks"):
        rollback.check(tmp_path, made, 90, 3)


def test_old_checkpoints_are_kept_as_long_as_a_spike_may_need_them(tmp_path: Any) -> None:
    tags = [tmp_path / retention.tag_name(step) for step in range(10, 60, 10)]
    for tag in tags:
        tag.mkdir()
    retention.prune(tmp_path, 2, tags[-1], undo_step=29)
    assert retention.tags(tmp_path) == [tags[4], tags[3], tags[1]]
    assert retention.go_back(tmp_path, 45) is None, "none of them is complete"
    assert all(later > earlier for later, earlier in pairwise(retention.tags(tmp_path)))
    assert len(retention.tags(tmp_path)) == 3
