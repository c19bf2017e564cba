"""fp16 with clipping and a dynamic loss scale, on two ranks, beside the same training in float64."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.pipeline.workers import processes, training
from tests.pipeline.workers.training import claim_fp16

STEPS, OVERFLOWING, WINDOW, POWER = 9, 4, 3, 8
CASES = [(1, 1, "fp16"), *[(stage, 3, sums) for stage in (1, 2, 3) for sums in ("fp16", "fp32")]]
"""ZeRO stage, accumulation, and the dtype in which gradients are added up, over micro-batches and over ranks."""


def train_all() -> dict[tuple[int, int, str], Any]:
    """What each of `CASES` comes to. In step `OVERFLOWING` the loss of rank 1 is 1e6 times
    as large in one micro-batch, which fp16 gradients cannot hold."""
    claim_fp16()
    return {case: _train(*case) for case in CASES}


def _train(stage: int, accumulation: int, sums: str) -> Any:
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    fp16 = {"initial_scale_power": POWER, "loss_scale_window": WINDOW, "hysteresis": 1}
    keys: Any = {"data_types": {"grad_accum_dtype": sums}, "communication_data_type": sums, "fp16": fp16}
    engine = training.make_engine(training.config(stage, "fp16", world, accumulation, **keys))
    scales, norms = [], []
    for step in range(STEPS):
        overflows = step == OVERFLOWING and rank == 1
        training.train(engine, step, step + 1, factor=1e6 if overflows else 1.0)
        scales.append(engine.optimizer.cur_scale)
        norms.append(float(engine.get_global_grad_norm()))
    gathered: list[Any] = [None] * world
    torch.distributed.all_gather_object(gathered, (scales, engine.skipped_steps))
    found = SimpleNamespace(
        weight=training.full(engine),
        exp_avg=training.full(engine, "exp_avg"),
        scales=[of_rank for of_rank, _ in gathered],  # the loss scale after each step, of each rank
        skipped=[skipped for _, skipped in gathered],  # the steps that each rank has skipped
        norms=norms,  # the gradient norm of each step on rank 0, infinite where it overflowed
    )
    training.close(engine)
    return found


@pytest.mark.slow
def test_an_overflow_on_one_rank_skips_the_step_on_all_and_the_rest_is_that_of_float64(tmp_path):
    wanted = training.reference(STEPS, rounded=True, skipped=frozenset({OVERFLOWING}))
    begun = training.reference(0, rounded=True)["weight"]
    for case, found in processes.run(2, train_all, scratch=tmp_path).items():
        # 2**8; doubled after three steps without an overflow and the next, halved by one, and doubled again likewise.
        assert found.scales == [[256, 256, 256, 512, 256, 256, 256, 256, 512]] * 2, case
        assert found.skipped == [1, 1], case
        assert [step for step in range(STEPS) if math.isinf(found.norms[step])] == [OVERFLOWING], case
        assert max(norm for norm in found.norms if norm < math.inf) > training.CLIP, case  # it was clipped
        change, wanted_change = (
            {name: ends[name] - begun[name] for name in begun} for ends in (found.weight, wanted["weight"])
        )
        assert training.difference(change, wanted_change) < 0.004, case  # of what training has changed
        # Micro-batches are added up in 16 bits.
        assert training.difference(found.exp_avg, wanted["exp_avg"]) < 0.006, case
