"""Whether buffers that are not what `zero_layout` says are refused at the start, or in LAMB's first update."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import deepspeed
import pytest
import torch

from common.errors import UserError
from pipeline.engine import layout_check, workarounds, zero_layout
from pipeline.engine.lamb import Lamb, TensorSlice
from tests.pipeline.workers import processes, training

LAYER, PROJECTION = "layer.weight", "projection.weight"
APPLY = workarounds.apply


def change(name: str, **shifts: int) -> Callable[[Any], list[TensorSlice]]:
    """`zero_layout.slices`, but with the fields of one tensor's slice shifted where this rank holds a part of it."""
    slices = zero_layout.slices

    def changed(engine: Any) -> list[TensorSlice]:
        found = slices(engine)
        for number, slice_ in enumerate(found):
            if slice_.name == name and slice_.length > 1:
                found[number] = replace(slice_, **{key: getattr(slice_, key) + by for key, by in shifts.items()})
        return found

    return changed


def wrong_values(engine: Any) -> None:
    """Makes the optimizer's weights of one tensor others than the model's, on one rank."""
    APPLY(engine)
    for slice_ in zero_layout.slices(engine):
        if slice_.name == LAYER and torch.distributed.get_rank() == 1:
            slice_.weight.add_(1.0)


def refusals(stages: list[int]) -> list[dict[str, str]]:
    """What each broken layout is refused with at each stage; "" if it is not."""
    return [_refusals(stage) for stage in stages]


def _refusals(stage: int) -> dict[str, str]:
    found = {}
    for case, shifts in {"twice": {"start": -1}, "missing": {"length": -1}, "elsewhere": {"offset": 1}}.items():
        found[case] = refusal(stage, mock.patch.object(zero_layout, "slices", change(PROJECTION, **shifts)))
    found["values"] = refusal(stage, mock.patch.object(workarounds, "apply", wrong_values))
    found["name"] = refusal(stage, mock.patch.object(workarounds, "apply", lambda engine: engine.gone))
    found["ratio"] = refusal(stage, mock.patch.object(Lamb, "_sum_over_ranks", lambda lamb, squares: squares * squares))
    found["old"] = refusal(stage, mock.patch.object(deepspeed, "__version__", "0.18.9+local"))
    found["right"] = refusal(stage, mock.patch.object(deepspeed, "__version__", "0.99.1+local"))
    return found


def refusal(stage: int, patch: Any) -> str:
    """Starts an engine and makes two steps; the error of this rank, or the note of the start."""
    # At stage 0 in fp32 the optimizer's weights and the model's are the same tensors.
    engine = training.make_engine(training.config(stage, "fp32" if stage else "bf16", 2), attach=False)
    with patch:
        try:
            note = layout_check.attach(engine)
            training.train(engine, 0, 2)
        except UserError as error:
            note = str(error)
    training.close(engine)
    return note


@pytest.mark.slow
def test_a_wrong_layout_is_refused_and_an_unknown_version_is_not(tmp_path):
    once = f"do not hold each of the 77 elements of {PROJECTION} exactly once"
    for found in processes.run(2, refusals, [0, 2, 3], scratch=tmp_path):
        assert found.pop("right") == "deepspeed 0.99.1 is untried here; its buffers have passed the checks"
        assert found.pop("old").startswith("deepspeed 0.18.9+local would train wrongly: versions before ")
        for line in found.values():
            assert line.startswith(f"deepspeed {deepspeed.__version__} would train wrongly: ")
            assert line.endswith(f"; pip install deepspeed=={layout_check.TRIED[-1]}")
            assert "\n" not in line
        assert once in found["twice"]
        assert once in found["missing"]
        assert f"weights of {PROJECTION} on rank" in found["elsewhere"]
        assert f"weights of {LAYER} on rank 1 are not the model's" in found["values"]
        assert "has no attribute 'gone'" in found["name"]
        assert "LAMB's trust ratio of " in found["ratio"]
