"""Every attention kernel computes, forward and backward, what plain products in fp32 give. An error is a failure."""

import pytest
import torch
from torch import Tensor

from model.attention.kernels import agrees_with_exact_attention
from model.attention.self_attention import AttentionPattern, attend
from pipeline.data.packed_rows import sequence_offsets
from tests.gpu.conftest import MARKS

MAX_SEQUENCES = 7  # padding counted as one
PLACES = [("cpu", "masked"), ("cpu", "sequences")]
CAPABILITY = {"masked": (0, 0), "cudnn": (8, 0), "flash": (8, 0)}
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
    assert agrees_with_exact_attention((context.detach(), gradient), projected, direction, ids)


@pytest.mark.parametrize(("kernel", "is_cudnn"), [("masked", False), ("cudnn", True)])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
def test_only_the_kernel_cudnn_is_cudnn_s(kernel: str, is_cudnn: bool) -> None:
    ids = rows_of_sequences(2, 512).cuda()
    projected = torch.randn(2, 512, 3, 12, 64, device="cuda", dtype=torch.float16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        attend(projected, AttentionPattern.for_packed_rows(ids, kernel), 0.0)
    assert any("cudnn_attention" in event.key for event in profile.key_averages()) is is_cudnn
