"""Where each tensor's elements lie in DeepSpeed's buffers."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from common.errors import UserError
from pipeline.engine import zero_layout
from pipeline.engine.lamb import TensorSlice
from tests.pipeline.workers import processes, training
from tests.pipeline.workers.training import claim_fp16


def coded(number: int, elements: int) -> Tensor:
    """A different value for each element of each tensor; all are exact in bf16."""
    return ((torch.arange(elements) * 7 + number * 31) % 251).float()


def write_coded(settings: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Writes a code into the fp32 weights of each tensor slice; what the model then has, and what it should have."""
    engine = training.make_engine(settings, attach=False)
    wanted = {}
    for number, here in enumerate(zero_layout.slices(engine)):
        code = coded(number, math.prod(here.shape))
        here.weight.copy_(code[here.start : here.start + here.length])
        wanted[here.name] = code.view(here.shape)
    zero_layout.refresh_model_weights(engine)
    found = training.model_weights(engine)
    training.close(engine)
    return found, wanted


def write_all_coded(cases: list[tuple[int, str, dict[str, Any]]]) -> tuple[list[Any], str]:
    """(found, wanted) of each (stage, precision, extra settings), and what the last one is refused with at a start."""
    claim_fp16()
    made = [training.config(stage, precision, dist.get_world_size(), **extra) for stage, precision, extra in cases]
    results = [write_coded(settings) for settings in made]
    engine = training.make_engine(made[-1], attach=False)
    with pytest.raises(UserError) as refused:
        zero_layout.attach(engine)
    training.close(engine)
    return results, str(refused.value)


@pytest.mark.parametrize(
    "pieces", [[(0, 4), (6, 4)], [(0, 5), (4, 6)], [(0, 10), (0, 10)], [(0, 4), (4, 5)], [(0, 4), (4, 7)], []]
)
def test_cover_refuses_gaps_and_overlaps(pieces: list[tuple[int, int]]) -> None:
    with pytest.raises(RuntimeError, match="do not hold each of the 10 elements of w exactly once"):
        zero_layout.check_cover("w", 10, pieces)


@given(st.integers(0, 40), st.integers(1, 9))
def test_owned_parts_of_a_whole_tensor_cover_it(elements: int, world: int) -> None:
    flat = torch.arange(elements, dtype=torch.float32)
    whole = TensorSlice("w", (elements,), 0, 0, elements, flat, 0)
    parts = [zero_layout.owned_part(whole, rank, world) for rank in range(world)]
    zero_layout.check_cover("w", elements, [(part.start, part.length) for part in parts])
    for part in parts:
        assert torch.equal(part.weight, flat[part.start : part.start + part.length])


CODED: list[tuple[int, str, dict[str, Any]]] = [
    *[(stage, "fp32", {}) for stage in range(4)],
    (0, "bf16", {}),
    (2, "bf16", {}),
    (3, "fp16", {}),
    (1, "bf16", {"data_types": {"grad_accum_dtype": "fp32"}}),
    (2, "fp32", {"zero_optimization": {"parameter_alignment": True}}),
    (3, "fp32", {"zero_optimization": {"sub_group_size": 10**9}}),
]
ROUND_ROBIN = (2, "fp32", {"zero_optimization": {"round_robin_gradients": True}})


@pytest.mark.slow
def test_values_written_into_slices_are_in_the_model(tmp_path: Path) -> None:
    """But where DeepSpeed's own map of its buffers is wrong, which is refused."""
    results, refusal = processes.run(3, write_all_coded, [*CODED, ROUND_ROBIN], scratch=tmp_path)
    for case, (found, wanted) in zip(CODED, results):
        assert training.difference(found, wanted) == 0.0, case
    assert "would train wrongly: " in refusal
    found, wanted = results[-1]  # why it is refused
    assert training.difference(found, wanted) > 0.01, "DeepSpeed has fixed round_robin_gradients"
