"""Compares the attention kernels with each other, and with softmax written out in float64."""

import pytest
import torch

from model import AlbertForPreTraining
from model.attention.self_attention import AttentionPattern, attend, attend_per_sequence
from tests.model.examples import tiny_config
from tests.model.test_packing import make_pair, pack

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
def test_inside_each_sequence_it_is_the_softmax_and_drops_the_same_weights_forward_and_backward(
    dropout: float, dtype: torch.dtype, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(sum(LENGTHS), 3, 4, 8, generator=generator).to(dtype).requires_grad_()
    direction = torch.randn(sum(LENGTHS), 4, 8, generator=generator)
    torch.manual_seed(3)
    factors = [(torch.rand(4, n, n) >= dropout) / (1 - dropout) for n in LENGTHS]
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
def test_projections_are_fused_once_for_all_layers_that_share_them(groups: int) -> None:
    model = AlbertForPreTraining(tiny_config(num_hidden_layers=4, num_hidden_groups=groups))
    calls = []
    for module in model.albert.encoder.attention:
        module.query_key_value.register_forward_hook(lambda *_: calls.append(1))
    model(**pack([[make_pair(0, 9, 1)]], length=12))
    assert len(calls) == groups
