"""The choice of an attention kernel, and the kernels for GPUs as far as a CPU can run them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from model import AlbertModel, ExecutionOptions
from model.attention import kernels
from model.attention.kernels import REPEATS, AttentionCase, WrongResult, candidates, choose_kernel, seconds_of
from model.attention.self_attention import (
    AttentionPattern,
    _attend_under_mask,
    attend,
    attend_variable_length,
)
from tests.model.examples import Synchronisations, tiny_config

IDS = torch.tensor([[0] * 5 + [1] * 7, [0] + [1] * 6 + [-1] * 5])
OFFSETS = torch.tensor([0, 5, 12, 13, 19, 24, 24], dtype=torch.int32)
"""Where the sequences of `IDS` begin, and an empty one."""


def case(**fields: object) -> AttentionCase:
    usual = {"device": torch.device("cuda"), "dtype": torch.bfloat16, "length": 512}
    return AttentionCase(**{**usual, "heads": 12, "head_dim": 64, "dropout": 0.0, **fields})


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["masked", "cudnn", "flash"]),
        ({"dtype": torch.float32}, ["masked"]),
        ({"head_dim": 20}, ["masked"]),
        ({"head_dim": 256}, ["masked", "flash"]),
        ({"length": 64}, ["masked", "flash"]),
        ({"length": 576}, ["masked", "flash"]),
        ({"deterministic": True}, ["masked", "flash"]),
    ],
)
def test_candidates_of_a_gpu_can_do_what_is_asked(fields: dict[str, object], names: list[str]) -> None:
    assert candidates(case(**fields)) == names


@pytest.mark.parametrize(
    ("device", "execution", "length", "kernel"),
    [
        ("cpu", ExecutionOptions(), 512, "sequences"),
        ("cpu", ExecutionOptions(), 128, "masked"),
        ("cpu", ExecutionOptions(compile=True), 512, "masked"),
        ("meta", ExecutionOptions(), 512, "masked"),
        ("cuda", ExecutionOptions(), 512, "masked"),
        ("cpu", ExecutionOptions(attention="flash"), 512, "flash"),
    ],
)
def test_without_a_gpu_a_rule_decides(device: str, execution: ExecutionOptions, length: int, kernel: str) -> None:
    assert choose_kernel(execution, torch.device(device), length) == kernel


def test_a_kernel_is_timed_with_dropout_after_it_agreed_without(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def attend_and_record(projected: Tensor, pattern: AttentionPattern, dropout: float) -> Tensor:
        tried.append((pattern.lengths is not None, dropout))
        return attend(projected, pattern, dropout)

    monkeypatch.setattr("model.attention.kernels.attend", attend_and_record)
    here = case(device=torch.device("cpu"), dtype=torch.float32, heads=4, head_dim=8, dropout=0.1)
    assert 0 < seconds_of(here, "sequences", IDS, None) < 60
    assert tried == [(True, 0.0)] + [(True, 0.1)] * (1 + REPEATS)


def test_a_gpu_is_timed_by_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host waits once, after all launches; 25 ms of the GPU are 0.025 s."""
    done = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("record")

        def synchronize(self) -> None:
            done.append("wait")

        def elapsed_time(self, end: "Event") -> float:
            assert end is not self
            return 25.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    assert kernels._seconds(lambda: done.append("run"), torch.device("cuda")) == 0.025
    assert done == ["record", *["run"] * REPEATS, "record", "wait"]


@pytest.mark.parametrize("kernel", ["sequences", "masked"])
@pytest.mark.parametrize("factor", [1.1, torch.nan])
def test_a_kernel_whose_results_differ_is_not_timed(factor: float, kernel: str, monkeypatch: Any) -> None:
    def attend_wrongly(projected: Tensor, pattern: AttentionPattern, dropout: float) -> Tensor:
        return attend(projected, pattern, dropout) * factor

    here = case(device=torch.device("cpu"), dtype=torch.bfloat16, heads=4, head_dim=8)
    seconds_of(here, kernel, IDS, None)
    monkeypatch.setattr("model.attention.kernels.attend", attend_wrongly)
    with pytest.raises(WrongResult):
        seconds_of(here, kernel, IDS, None)


@pytest.mark.parametrize("cudnn", [True, False])
def test_a_gpu_has_the_kernel_that_was_asked_for_even_if_torch_prefers_another(cudnn: bool, monkeypatch: Any) -> None:
    on = {}

    def note(query: Tensor, *_: object, **__: object) -> Tensor:
        for name in ("cudnn", "mem_efficient", "flash", "math"):
            on[name] = getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
        return query

    monkeypatch.setattr("model.attention.self_attention.functional.scaled_dot_product_attention", note)
    tensor = torch.empty(1, 1, 2, 8, device="meta")
    pattern = AttentionPattern(mask=torch.ones(1, 1, 2, 2, dtype=torch.bool), cudnn=cudnn)
    _attend_under_mask(tensor, tensor, tensor, pattern, 0.0)
    assert on == {"cudnn": cudnn, "mem_efficient": not cudnn, "flash": False, "math": not cudnn}


def test_a_kernel_is_refused_where_it_would_compute_something_else() -> None:
    with pytest.raises(ValueError, match="unknown attention 'flashh'; did you mean 'flash'"):
        ExecutionOptions(attention="flashh")
    with pytest.raises(ValueError, match="'flash' does not support a head_dim of 4"):
        AlbertModel(tiny_config(num_attention_heads=6), ExecutionOptions(attention="flash"))
    with pytest.raises(ValueError, match="'sequences' reads lengths"):
        ExecutionOptions(attention="sequences", compile=True)
    model = AlbertModel(tiny_config(), ExecutionOptions(attention="flash"))
    with pytest.raises(ValueError, match="give cu_seqlens"):
        model(torch.zeros_like(IDS), position_ids=torch.zeros_like(IDS), sequence_ids=IDS)


def by_products(query, key, value, starts, ends, longest, _, dropout, causal, debug, scale):
    """FlashAttention's operator as documented: it computes each sequence alone, and nothing for empty ones."""
    assert torch.equal(starts, ends)
    assert (causal, debug, dropout) == (False, False, 0.0)
    assert longest >= int(starts.diff().max())
    contexts = []
    for start, end in zip(starts.tolist(), starts.tolist()[1:]):
        q, k, v = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
        contexts.append((torch.softmax(q @ k.mT * scale, -1) @ v).transpose(0, 1))
    return torch.cat(contexts), None


@pytest.mark.parametrize("kernel", ["flash", "sequences", "cudnn"])
def test_every_kernel_attends_like_the_masked_one(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of FlashAttention and cuDNN needs a GPU. Equal arithmetic replaces it; inputs and outputs are tested."""
    if kernel == "flash":
        monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", by_products)
    monkeypatch.setattr("model.attention.self_attention.CUDNN", [torch.nn.attention.SDPBackend.MATH])
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(2, 12, 3, 4, 8, generator=generator).requires_grad_()
    expected = attend(projected, AttentionPattern.for_packed_rows(IDS), 0.0)
    pattern = AttentionPattern.for_packed_rows(IDS, kernel, OFFSETS)
    assert pattern.cudnn is (kernel == "cudnn")
    found = attend(projected, pattern, 0.0)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-6)
    direction = torch.randn(2, 12, 4, 8, generator=generator)
    (gradient,) = torch.autograd.grad(found, projected, direction)
    (wanted,) = torch.autograd.grad(expected, projected, direction)
    torch.testing.assert_close(gradient, wanted, atol=2e-6, rtol=2e-6)


def test_a_model_tells_flash_attention_its_dropout_and_the_offsets(monkeypatch) -> None:
    asked = []

    def record(query, key, value, starts, ends, longest, longest_key, dropout, causal, debug, scale):
        asked.append((starts.tolist(), longest, longest_key, dropout))
        return by_products(query, key, value, starts, ends, longest, longest_key, 0.0, causal, debug, scale)

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", record)
    model = AlbertModel(tiny_config(attention_probs_dropout_prob=0.25), ExecutionOptions(attention="flash"))
    model(IDS.clamp(min=0), position_ids=torch.zeros_like(IDS), sequence_ids=IDS, cu_seqlens=OFFSETS)
    assert asked == [(OFFSETS.tolist(), 12, 12, 0.25)] * 3


def test_flash_attention_takes_our_arguments_and_differentiates() -> None:
    """On the meta device: names, dtypes, shapes and the backward formula of this torch version."""
    projected = torch.empty(24, 3, 4, 8, device="meta", dtype=torch.bfloat16, requires_grad=True)
    cu_seqlens = OFFSETS.to("meta")
    context = attend_variable_length(projected, cu_seqlens, 12, dropout=0.1)
    assert (context.shape, context.dtype) == ((24, 4, 8), torch.bfloat16)
    context.sum().backward()
    assert projected.grad is not None


@pytest.mark.parametrize("kernel", ["masked", "cudnn", "flash"])
def test_a_pattern_is_made_without_waiting_for_the_device(kernel: str) -> None:
    with Synchronisations() as synchronisations:
        AttentionPattern.for_packed_rows(IDS, kernel, OFFSETS)
    assert synchronisations.found == []
