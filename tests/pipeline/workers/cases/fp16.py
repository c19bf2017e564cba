"""Trains the small model in fp16 on two ranks, with clipping; the gradients of one rank overflow in one step."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.pipeline.workers import training
from tests.pipeline.workers.cases.lamb import claim_fp16

STEPS, OVERFLOWING, WINDOW, POWER = 9, 4, 3, 8
CASES = [(1, 1), (1, 3), (2, 3), (3, 3)]


class Trained(NamedTuple):
    """The end of one training.

    Attributes:
        weight, exp_avg: whole fp32 tensors by name.
        scales: the loss scale after each step, of each rank.
        skipped: the steps that each rank has skipped.
        norms: the gradient norm of each step on rank 0, infinite where it overflowed.
    """

    weight: dict[str, Tensor]
    exp_avg: dict[str, Tensor]
    scales: list[list[float]]
    skipped: list[int]
    norms: list[float]


def train_all() -> dict[tuple[int, int], Trained]:
    """What each of `CASES` (ZeRO stage, accumulation) comes to. In step `OVERFLOWING` the loss of rank 1 is 1e6 times
    as large in one micro-batch, which fp16 gradients cannot hold."""
    claim_fp16()
    return {case: _train(*case) for case in CASES}


def _train(stage: int, accumulation: int) -> Trained:
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    fp16 = {"initial_scale_power": POWER, "loss_scale_window": WINDOW, "hysteresis": 1}
    engine = training.make_engine(training.config(stage, "fp16", world, accumulation, fp16=fp16))
    scales, norms = [], []
    for step in range(STEPS):
        overflows = step == OVERFLOWING and rank == 1
        training.train(engine, step, step + 1, factor=1e6 if overflows else 1.0)
        scales.append(engine.optimizer.cur_scale)
        norms.append(float(engine.get_global_grad_norm()))
    gathered: list[Any] = [None] * world
    torch.distributed.all_gather_object(gathered, (scales, engine.skipped_steps))
    found = Trained(
        training.full(engine),
        training.full(engine, "exp_avg"),
        [of_rank for of_rank, _ in gathered],
        [skipped for _, skipped in gathered],
        norms,
    )
    training.close(engine)
    return found
