"""Compares the attention kernels with each other, and with softmax written out in float64."""

import pytest
import torch

from model.attention.self_attention import AttentionLayout, attend


def written_out(query, key, value, mask):
    query, key, value = (tensor.double() for tensor in (query, key, value))
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, dim=-1) @ value


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("packed", [True, False])
def test_every_kernel_gives_the_softmax_and_its_gradients(dtype, tolerance, packed):
    # bf16 keeps 8 bits: weights, products and sums each round at 2**-9 of values up to 3.
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, 3, 12, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]
    layout = AttentionLayout()
    if packed:
        layout = AttentionLayout.for_packed_rows(torch.tensor([[0] * 5 + [1] * 7, [0] * 9 + [-1] * 3]))
    direction = torch.randn(2, 3, 12, 8, generator=generator)
    expected = written_out(*tensors, layout.mask)
    expected_gradients = torch.autograd.grad((expected * direction).sum(), tensors)
    projected = torch.stack([tensor.transpose(1, 2) for tensor in tensors], dim=2)  # (B, S, 3, heads, D)
    found = attend(projected, layout, dropout=0.0).transpose(1, 2)
    gradients = torch.autograd.grad((found.float() * direction).sum(), tensors)
    assert found.dtype == dtype
    for one, other in zip((found, *gradients), (expected, *expected_gradients)):
        torch.testing.assert_close(one.float(), other.float(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_nothing_but_padding_has_numbers(dtype):
    """Result and gradients are finite, and those of other rows do not change."""
    projected = torch.randn(2, 6, 3, 2, 4, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    tokens = torch.tensor([[1, 1, 1, 1, 0, 0], [0] * 6])
    found = attend(projected, AttentionLayout.for_padded_rows(tokens), dropout=0.0)
    (gradient,) = torch.autograd.grad(found.sum(), projected)
    assert found.isfinite().all()
    assert gradient.isfinite().all()
    alone = attend(projected[:1], AttentionLayout.for_padded_rows(tokens[:1]), dropout=0.0)
    torch.testing.assert_close(found[:1], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_takes_weights_and_keeps_their_expectation(dtype):
    torch.manual_seed(0)
    projected = torch.zeros(1, 400, 3, 1, 4, dtype=dtype)
    projected[:, :, 2] = 1.0
    found = attend(projected, AttentionLayout(), dropout=0.25).float()
    # Each output is the mean of 400 weights that are 0 or 4/3: standard error 0.029, and 0.0014 over all rows.
    assert abs(found[..., 0].mean() - 1.0) < 0.01
    assert found[..., 0].std() > 0.015
