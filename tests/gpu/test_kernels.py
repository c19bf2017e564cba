"""Every attention kernel computes, forward and backward, what plain products in fp32 give. An error is a failure."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.layers.attention import AttentionPattern, attend
from pipeline.data.packed_rows import sequence_offsets
from tests.gpu.conftest import MARKS

MAX_SEQUENCES = 7  # padding counted as one
PLACES = [("cpu", "masked"), ("cpu", "sequences")]
CAPABILITY = {"masked": (0, 0), "flash": (8, 0)}
"""The compute capability that a kernel needs, for the tensor cores of that generation."""
BF16 = {torch.float16: (0, 0), torch.bfloat16: (8, 0)}
ON_GPU = [pytest.param("cuda", kernel, marks=MARKS) for kernel in CAPABILITY]


def rows_of_sequences(rows: int, length: int) -> Tensor:
    """int64 (rows, length): sequences of random lengths with padding at the end; the first row has one sequence."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.full((rows, length), -1)
    for row in range(rows):
        cuts = sorted(torch.randperm(length - 2, generator=generator)[: MAX_SEQUENCES - 1].add(1).tolist())
        for number, (start, end) in enumerate(zip([0, *cuts], cuts)):
            ids[row, start:end] = number
    ids[0] = 0
    return ids


TOLERANCE = 2e-2
"""Largest accepted difference to exact attention, relative to the largest value. bf16 rounds at 2**-9; a kernel that
attends to one token too many differs by 0.1 or more."""


def exact_attention(projected: Tensor, direction: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The context (B, S, heads, D) and the gradient (B, S, 3, heads, D) by plain products in fp32."""
    inputs = projected.detach().float().requires_grad_()  # (B, S, 3, heads, D)
    query, key, value = inputs.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, S, D)
    mask = ids[:, None, :, None] == ids[:, None, None, :]  # (B, 1, S, S)
    with sdpa_kernel(SDPBackend.MATH):
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
    (gradient,) = torch.autograd.grad(context, inputs, direction.float())
    return context, gradient


@pytest.mark.parametrize(("place", "kernel"), [*PLACES, *ON_GPU])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("heads", [12, 64])
def test_every_kernel_agrees_with_exact_attention(place: str, kernel: str, heads: int, dtype: torch.dtype) -> None:
    device = torch.device(place)
    if place == "cuda" and torch.cuda.get_device_capability() < max(CAPABILITY[kernel], BF16[dtype]):
        pytest.skip(f"this GPU is too old for {kernel} in {dtype}")
    rows, length, head_dim = (16, 512, 64) if place == "cuda" else (2, 48, 8)
    ids = rows_of_sequences(rows, length).to(device)
    generator = torch.Generator().manual_seed(1)
    projected = torch.randn(rows, length, 3, heads, head_dim, generator=generator).to(device, dtype)
    direction = torch.randn(rows, length, heads, head_dim, generator=generator).to(device, dtype)

    pattern = AttentionPattern.for_packed_rows(
        ids, kernel, torch.from_numpy(sequence_offsets(ids.cpu().numpy())).to(device)
    )
    inputs = projected.detach().requires_grad_()
    context = attend(inputs, pattern, 0.0)
    (gradient,) = torch.autograd.grad(context, inputs, direction)
    for found, exact in zip((context, gradient), exact_attention(projected, direction, ids)):
        assert bool((found.float() - exact).abs().max() <= TOLERANCE * exact.abs().max())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
def test_the_masked_kernel_is_not_cudnn_s() -> None:
    ids = rows_of_sequences(2, 512).cuda()
    projected = torch.randn(2, 512, 3, 12, 64, device="cuda", dtype=torch.float16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        attend(projected, AttentionPattern.for_packed_rows(ids, "masked"), 0.0)
    assert not any("cudnn_attention" in event.key for event in profile.key_averages())
