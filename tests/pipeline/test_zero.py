"""Where the elements lie; what is refused; and whether DeepSpeed still needs each remedy."""

import re
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import UserError
from pipeline import zero
from tests.pipeline.workers import processes, training
from tests.pipeline.workers.zero_cases import defects, write_all_coded

MENDED = "DeepSpeed has mended this: take the remedy out of pipeline/zero.py, and this test with it"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.randoms())
def test_cover_accepts_any_cut_in_any_order(lengths: list[int], random: Any) -> None:
    pieces, start = [], 0
    for length in lengths:
        pieces.append((start if length else random.randint(0, 99), length))
        start += length
    random.shuffle(pieces)
    zero.check_cover("w", start, pieces)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([(0, 4), (6, 4)], "elements 4 to 6 of w are in no rank's buffer"),
        ([(0, 5), (4, 6)], "elements 4 to 5 of w are in the buffers of two ranks"),
        ([(0, 10), (0, 10)], "elements 0 to 10 of w are in the buffers of two ranks"),
        ([(0, 4), (4, 5)], "w has 10 elements, and the ranks' buffers hold 9 of them"),
        ([(0, 4), (4, 7)], "w has 10 elements, and the ranks' buffers hold 11 of them"),
        ([], "w has 10 elements, and the ranks' buffers hold 0 of them"),
    ],
)
def test_cover_refuses_gaps_and_overlaps(pieces: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(message)):
        zero.check_cover("w", 10, pieces)


@given(st.integers(0, 40), st.integers(1, 9))
def test_owned_parts_of_a_whole_tensor_cover_it(elements: int, world: int) -> None:
    flat = torch.arange(elements, dtype=torch.float32)
    whole = zero.Segment("w", (elements,), 0, 0, elements, flat, 0)
    parts = [zero.owned(whole, rank, world) for rank in range(world)]
    zero.check_cover("w", elements, [(part.start, part.length) for part in parts])
    for part in parts:
        assert torch.equal(part.master, flat[part.start : part.start + part.length])


def test_another_deepspeed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    zero.check_version()
    monkeypatch.setattr(deepspeed, "__version__", "0.20.0+abc")
    with pytest.raises(UserError, match=r"deepspeed 0\.20\.0 is installed.*pip install deepspeed==0\.19\.8"):
        zero.check_version()
    monkeypatch.setattr(deepspeed, "__version__", "0.19.8+local")
    zero.check_version()


LAMB = {"optimizer": {"type": "Lamb"}, "zero_allow_untested_optimizer": True}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"zero_optimization": {"stage": 2, "round_robin_gradients": True}}, "round_robin_gradients"),
        ({"fp16": {"enabled": True}}, '"stage": 1'),
        ({"fp16": {"enabled": True}, "zero_optimization": {"stage": 0}}, '"stage": 1'),
        ({"activation_checkpointing": {"partition_activations": True}}, "--activation-checkpointing"),
        ({"fp16": {"fp16_master_weights_and_grads": True}}, "fp16_master_weights_and_grads"),
        ({"bf16": {"bf16_master_weights_and_grads": True}}, "bf16_master_weights_and_grads"),
        ({"zero_optimization": {"stage": 3, "zero_quantized_gradients": True}}, "zero_quantized_gradients"),
        ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}, "zero_hpz_partition_size"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}, "nvme"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, "nvme"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu", "super_offload": True}}}, "super_offload"),
        ({"optimizer": {"type": "AdamW"}, "bf16": {"enabled": True}}, "bf16 with AdamW at ZeRO stage 0"),
        ({"optimizer": {"type": "Lamb"}, "zero_optimization": {"stage": 1}}, "zero_allow_untested_optimizer"),
        (
            {**LAMB, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
            "zero_force_ds_cpu_optimizer",
        ),
    ],
)
def test_settings_that_would_be_wrong_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        zero.refuse_what_is_wrong(config)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {**LAMB, "fp16": {"enabled": True}, "zero_optimization": {"stage": 1}},
        {**LAMB, "fp16": {"enabled": False}},
        {**LAMB, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
        {"optimizer": {"type": "AdamW"}, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}},
        {"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}, "bf16": {"enabled": True}},
        {**LAMB, "bf16": {"enabled": True}},
        {
            **LAMB,
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
            "zero_force_ds_cpu_optimizer": False,
        },
    ],
)
def test_settings_that_are_right_are_not_refused(config: dict[str, Any]) -> None:
    zero.refuse_what_is_wrong(config)


OFFLOAD = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
CODED: list[tuple[int, str, dict[str, Any]]] = [
    *[(stage, "fp32", {}) for stage in range(4)],
    (0, "bf16", {}),
    (2, "bf16", {}),
    (3, "fp16", {}),
    (1, "bf16", {"data_types": {"grad_accum_dtype": "fp32"}}),
    (1, "bf16", OFFLOAD),
    (3, "bf16", OFFLOAD),
    (3, "bf16", {"zero_optimization": {"offload_param": {"device": "cpu"}, **OFFLOAD["zero_optimization"]}}),
    (2, "fp32", {"zero_optimization": {"parameter_alignment": True}}),
    (3, "fp32", {"zero_optimization": {"sub_group_size": 10**9}}),
]
ROUND_ROBIN = (2, "fp32", {"zero_optimization": {"round_robin_gradients": True}})


def test_what_is_written_into_segments_is_in_the_model(tmp_path: Path) -> None:
    results = processes.run(3, write_all_coded, [*CODED, ROUND_ROBIN], scratch=tmp_path)
    for case, (found, wanted) in zip(CODED, results):
        assert training.difference(found, wanted) == 0.0, case
    found, wanted = results[-1]
    assert training.difference(found, wanted) > 0.01, MENDED


@pytest.fixture(scope="module")
def found_defects(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    found: dict[Any, Any] = processes.run(2, defects, scratch=tmp_path_factory.mktemp("zero"))
    return found


def test_bf16_at_stage_0_steps_before_training(found_defects: dict[Any, Any]) -> None:
    assert found_defects["first step"] > 1e-3, MENDED
    assert found_defects["first step mended"] == 0.0


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_loss_scale_doubles_before_gradients_are_unscaled(stage: int, found_defects: dict[Any, Any]) -> None:
    wanted = training.reference(3, parts=2, dtype=torch.float16, clip=0.0)["exp_avg"]
    assert training.difference(found_defects["doubling", stage, True], wanted) < 0.01
    assert training.difference(found_defects["doubling", stage, False], wanted) > 0.2, MENDED


def test_fp16_at_stage_0_divides_by_a_scale_that_the_loss_never_had(found_defects: dict[Any, Any]) -> None:
    wanted = training.reference(1, parts=2, dtype=torch.float16, clip=0.0)["exp_avg"]
    assert training.difference(found_defects["fp16", 1], wanted) < 0.01
    assert training.difference(found_defects["fp16", 0], wanted) > 0.5, MENDED


def test_reentrant_checkpointing_is_wrong_for_shared_layers(found_defects: dict[Any, Any]) -> None:
    def right(stage: int, use_reentrant: bool) -> bool:
        found = found_defects["checkpointing", stage, use_reentrant]
        wanted = found_defects["checkpointing", 2, False]
        return not isinstance(found, str) and all(torch.allclose(a, b, rtol=1e-4) for a, b in zip(found, wanted))

    assert right(2, False)
    assert right(3, False)
    assert not (right(2, True) and right(3, True)), MENDED
