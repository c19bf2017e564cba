"""The choice of an attention kernel; the kernels beside each other, and beside softmax written out in float64.

Those of a GPU are tried as far as a CPU can run them.
"""

from types import SimpleNamespace

import pytest
import torch

from model import AlbertForPreTraining, AlbertModel, ExecutionOptions
from model.layers import processor
from model.layers.attention import AttentionPattern, attend, choose_kernel
from model.layers.processor import attend_per_sequence
from tests.model.examples import Synchronisations, tiny_config
from tests.model.test_packing import make_pair, pack

IDS = torch.tensor([[0] * 5 + [1] * 7, [0] + [1] * 6 + [-1] * 5])
OFFSETS = torch.tensor([0, 5, 12, 13, 19, 24, 24], dtype=torch.int32)
"""Where the sequences of `IDS` begin, and an empty one."""


FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


@pytest.mark.parametrize(
    ("device", "length", "dtype", "head_dim", "has_offsets", "capability", "options", "kernel"),
    [
        ("cpu", 512, FP32, 8, True, None, {}, "sequences"),
        ("cpu", 128, FP32, 8, True, None, {}, "masked"),
        ("cpu", 512, FP32, 8, True, None, {"compile": True}, "masked"),
        ("meta", 512, FP32, 8, True, None, {}, "masked"),
        ("cpu", 512, FP32, 8, True, None, {"attention": "flash"}, "flash"),
        ("cuda", 512, BF16, 64, True, (8, 0), {}, "flash"),
        ("cuda", 512, FP16, 256, True, (9, 0), {}, "flash"),
        ("cuda", 512, FP32, 64, True, (9, 0), {}, "masked"),
        ("cuda", 512, FP16, 64, True, (7, 5), {}, "masked"),
        ("cuda", 512, BF16, 20, True, (8, 0), {}, "masked"),
        ("cuda", 512, BF16, 64, False, (8, 0), {}, "masked"),
    ],
)
def test_which_kernel_is_chosen(device, length, dtype, head_dim, has_offsets, capability, options, kernel, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    hidden = SimpleNamespace(device=torch.device(device), dtype=dtype, shape=(2, length, 768))
    assert choose_kernel(ExecutionOptions(**options), hidden, head_dim, has_offsets) == kernel


def test_a_gpu_has_the_masked_kernel_even_if_torch_prefers_another(monkeypatch):
    on = {}

    def note(query, *_, **__):
        for name in ("cudnn", "mem_efficient", "flash", "math"):
            on[name] = getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
        return query

    monkeypatch.setattr("model.layers.attention.functional.scaled_dot_product_attention", note)
    projected = torch.empty(1, 2, 3, 1, 8, device="meta")
    attend(projected, AttentionPattern(mask=torch.ones(1, 1, 2, 2, dtype=torch.bool)), 0.0)
    assert on == {"cudnn": False, "mem_efficient": True, "flash": False, "math": True}


def test_unknown_options_are_refused_and_a_kernel_where_it_would_compute_something_else():
    with pytest.raises(ValueError, match="unknown attention 'flashh'; did you mean flash"):
        ExecutionOptions(attention="flashh")
    with pytest.raises(ValueError, match="unknown activation_checkpointing 'layers'; did you mean layer"):
        ExecutionOptions(activation_checkpointing="layers")
    with pytest.raises(ValueError, match="'flash' does not support a head_dim of 4"):
        AlbertModel(tiny_config(num_attention_heads=6), ExecutionOptions(attention="flash"))
    with pytest.raises(ValueError, match="'sequences' reads lengths"):
        ExecutionOptions(attention="sequences", compile=True)
    model = AlbertModel(tiny_config(), ExecutionOptions(attention="flash"))
    with pytest.raises(ValueError, match="give cu_seqlens"):
        model(torch.zeros_like(IDS), position_ids=torch.zeros_like(IDS), sequence_ids=IDS)


@pytest.mark.parametrize("kernel", ["flash", "sequences"])
def test_every_kernel_attends_like_the_masked_one(kernel, flash_on_processor):
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(2, 12, 3, 4, 8, generator=generator).requires_grad_()
    expected = attend(projected, AttentionPattern.for_packed_rows(IDS), 0.0)
    pattern = AttentionPattern.for_packed_rows(IDS, kernel, OFFSETS)
    found = attend(projected, pattern, 0.0)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-6)
    direction = torch.randn(2, 12, 4, 8, generator=generator)
    (gradient,) = torch.autograd.grad(found, projected, direction)
    (wanted,) = torch.autograd.grad(expected, projected, direction)
    torch.testing.assert_close(gradient, wanted, atol=2e-6, rtol=2e-6)


def test_a_model_tells_flash_attention_its_dropout_and_the_offsets(monkeypatch):
    asked = []

    def record(query, key, value, starts, ends, longest, longest_key, dropout, causal, debug, scale):
        asked.append((starts.tolist(), longest, longest_key, dropout))
        return (query,)

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", record)
    model = AlbertModel(tiny_config(attention_probs_dropout_prob=0.25), ExecutionOptions(attention="flash"))
    model(IDS.clamp(min=0), position_ids=torch.zeros_like(IDS), sequence_ids=IDS, cu_seqlens=OFFSETS)
    assert asked == [(OFFSETS.tolist(), 12, 12, 0.25)] * 3


@pytest.mark.parametrize("kernel", ["masked", "flash"])
def test_a_pattern_is_made_without_waiting_for_the_device(kernel):
    with Synchronisations() as synchronisations:
        AttentionPattern.for_packed_rows(IDS, kernel, OFFSETS)
    assert synchronisations.found == []


LENGTHS = [5, 7, 1, 11]


def test_a_row_of_nothing_but_padding_has_numbers():
    """Result and gradients are finite, and those of other rows do not change."""
    projected = torch.randn(2, 6, 3, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tokens = torch.tensor([[1, 1, 1, 1, 0, 0], [0] * 6])
    found = attend(projected, AttentionPattern.for_padded_rows(tokens), dropout=0.0)
    (gradient,) = torch.autograd.grad(found.sum(), projected)
    assert found.isfinite().all()
    assert gradient.isfinite().all()
    alone = attend(projected[:1], AttentionPattern.for_padded_rows(tokens[:1]), dropout=0.0)
    torch.testing.assert_close(found[:1], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_takes_weights_and_keeps_their_expectation(dtype):
    torch.manual_seed(0)
    projected = torch.zeros(1, 400, 3, 1, 4, dtype=dtype)
    projected[:, :, 2] = 1.0
    found = attend(projected, AttentionPattern(), dropout=0.25).float()
    # Each output is the mean of 400 weights that are 0 or 4/3: standard error 0.029, and 0.0014 over all rows.
    assert abs(found[..., 0].mean() - 1.0) < 0.01
    assert found[..., 0].std() > 0.015


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("is_packed", [True, False])
def test_under_a_mask_it_is_the_softmax_of_what_may_be_seen(is_packed, dropout, dtype, tolerance):
    pattern = AttentionPattern.for_packed_rows(IDS) if is_packed else AttentionPattern.for_padded_rows(IDS >= 0)
    projected = torch.randn(2, 12, 3, 2, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch.manual_seed(3)
    factors = processor._draw_kept(torch.Size((2, 2, 12, 12)), dropout) / (1 - dropout)
    query, key, value = projected.double().permute(2, 0, 3, 1, 4)  # (B, heads, S, D) each
    scores = (query @ key.mT / 8**0.5).masked_fill(~pattern.mask, -torch.inf)
    expected = (scores.softmax(-1) * factors @ value).transpose(1, 2)
    torch.manual_seed(3)
    found = attend(projected, pattern, dropout)
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_inside_each_sequence_it_is_the_softmax_and_drops_the_same_weights_both_ways(dropout, dtype, tolerance):
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(sum(LENGTHS), 3, 4, 8, generator=generator).to(dtype).requires_grad_()
    direction = torch.randn(sum(LENGTHS), 4, 8, generator=generator)
    torch.manual_seed(3)
    factors = [processor._draw_kept(torch.Size((4, n, n)), dropout) / (1 - dropout) for n in LENGTHS]
    contexts = []
    for part, factor in zip(projected.double().split(LENGTHS), factors):
        query, key, value = part.unbind(1)  # (N, heads, D)
        weights = torch.einsum("qhd,khd->hqk", query, key).div(8**0.5).softmax(-1)
        contexts.append(torch.einsum("hqk,khd->qhd", weights * factor, value))
    expected = torch.cat(contexts)
    torch.manual_seed(3)
    found = attend_per_sequence(projected, LENGTHS, dropout)
    (gradient,) = torch.autograd.grad((found.float() * direction).sum(), projected)
    (wanted,) = torch.autograd.grad((expected * direction).sum(), projected)
    assert found.dtype == gradient.dtype == projected.dtype
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(gradient.double(), wanted.double(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("groups", [1, 2])
def test_projections_are_fused_once_for_all_layers_that_share_them(groups):
    model = AlbertForPreTraining(tiny_config(num_hidden_layers=4, num_hidden_groups=groups))
    calls = []
    for module in model.albert.encoder.attention:
        module.query_key_value.register_forward_hook(lambda *_: calls.append(1))
    model(**pack([[make_pair(0, 9, 1)]], length=12))
    assert len(calls) == groups
