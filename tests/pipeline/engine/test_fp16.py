"""fp16 with clipping and a dynamic loss scale, on two ranks, beside the same training in float64."""

import math
from typing import Any

import pytest

from tests.pipeline.workers import processes, training
from tests.pipeline.workers.cases.fp16 import CASES, OVERFLOWING, STEPS, Trained, train_all

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Trained]:
    found: dict[Any, Trained] = processes.run(2, train_all, scratch=tmp_path_factory.mktemp("fp16"))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"stage {case[0]}, {case[1]} accumulated")
def test_an_overflow_on_one_rank_skips_the_step_on_all_and_the_rest_is_that_of_float64(
    case: tuple[int, int], trained: dict[Any, Trained]
) -> None:
    found = trained[case]
    # 2**8; doubled after three steps without an overflow and the next one, halved by one, and doubled again likewise.
    assert found.scales == [[256, 256, 256, 512, 256, 256, 256, 256, 512]] * 2
    assert found.skipped == [1, 1]
    assert [step for step in range(STEPS) if math.isinf(found.norms[step])] == [OVERFLOWING]
    assert max(norm for norm in found.norms if norm < math.inf) > training.CLIP  # it was clipped
    wanted = training.reference(STEPS, rounded=True, skipped=frozenset({OVERFLOWING}))
    begun = training.reference(0, rounded=True)["weight"]
    change, wanted_change = (
        {name: ends[name] - begun[name] for name in begun} for ends in (found.weight, wanted["weight"])
    )
    assert training.difference(change, wanted_change) < 0.004  # of what training has changed
    assert training.difference(found.exp_avg, wanted["exp_avg"]) < 0.006  # micro-batches are added up in fp16
