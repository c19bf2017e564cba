"""Every attention kernel computes, forward and backward, what plain products in fp32 give. An error is a failure.

With dropout it does so for the weights that it keeps.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

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


def inputs_on(place: str, seed: int, heads: int, head_dim: int, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
    """Ids (B, S), projections (B, S, 3, heads, D) and a direction (B, S, heads, D); fp16 on a GPU, else fp32."""
    rows, length = (16, 512) if place == "cuda" else (2, 48)
    dtype = dtype or (torch.float16 if place == "cuda" else torch.float32)
    generator = torch.Generator().manual_seed(seed)
    projected = torch.randn(rows, length, 3, heads, head_dim, generator=generator).to(place, dtype)
    direction = torch.randn(rows, length, heads, head_dim, generator=generator).to(place, dtype)
    return rows_of_sequences(rows, length).to(place), projected.requires_grad_(), direction


def skip_on_old_gpus(place: str, kernel: str, dtype: torch.dtype = torch.float16) -> None:
    """Skips the test if the GPU has no such kernel."""
    if place == "cuda" and torch.cuda.get_device_capability() < max(CAPABILITY[kernel], BF16[dtype]):
        pytest.skip(f"this GPU is too old for {kernel} in {dtype}")


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
def test_every_kernel_agrees_with_exact_attention(place, kernel, heads, dtype):
    skip_on_old_gpus(place, kernel, dtype)
    ids, inputs, direction = inputs_on(place, 1, heads, 64 if place == "cuda" else 8, dtype)
    context = attend(inputs, pattern_of(ids, kernel), 0.0)
    (gradient,) = torch.autograd.grad(context, inputs, direction)
    for found, exact in zip((context, gradient), exact_attention(inputs, direction, ids)):
        assert bool((found.float() - exact).abs().max() <= TOLERANCE * exact.abs().max())


DROPOUT = 0.1


def pattern_of(ids: Tensor, kernel: str) -> AttentionPattern:
    offsets = torch.from_numpy(sequence_offsets(ids.cpu().numpy())).to(ids.device)
    return AttentionPattern.for_packed_rows(ids, kernel, offsets)


def runner(way: str, place: str) -> Callable[..., Tensor]:
    """`attend` as a layer runs it: "plain", "compiled", "recomputed", or both."""
    run: Callable[..., Tensor] = attend
    if "compiled" in way:
        torch.compiler.reset()
        run = torch.compile(run, backend="inductor" if place == "cuda" else "aot_eager", fullgraph=True)
    return partial(checkpoint, run, use_reentrant=False) if "recomputed" in way else run


WAYS = ["plain", "compiled", "recomputed", "compiled and recomputed"]
DROPPING = [
    *[("cpu", "masked", way) for way in WAYS],
    *[("cpu", "sequences", way) for way in WAYS if "compiled" not in way],
    *[pytest.param("cuda", kernel, way, marks=MARKS) for kernel in CAPABILITY for way in WAYS],
]


@pytest.mark.parametrize(("place", "kernel", "way"), DROPPING)
def test_forward_and_backward_drop_the_same_weights(place, kernel, way):
    skip_on_old_gpus(place, kernel)
    # With one mask the result is linear in the values, so sum(result * direction) = sum(values * their gradient).
    ids, inputs, direction = inputs_on(place, 2, 12, 64 if place == "cuda" else 8)
    torch.manual_seed(3)
    context = runner(way, place)(inputs, pattern_of(ids, kernel), DROPOUT)
    (gradient,) = torch.autograd.grad(context, inputs, direction)
    products = context.detach().double() * direction.double()  # (B, S, heads, D)
    values, of_values = (tensor[:, :, 2].double() for tensor in (inputs.detach(), gradient))  # (B, S, heads, D) each
    error = (products - values * of_values).sum((0, 1, 3)).abs() / products.square().sum((0, 1, 3)).sqrt()  # (heads,)
    # Other masks give about sqrt(2 * 0.1 / 0.9) = 0.47 times a normal number in each of 12 heads; rounding 0.001.
    assert float(error.max()) <= 0.02
    torch.manual_seed(4)
    assert not torch.equal(context, runner(way, place)(inputs, pattern_of(ids, kernel), DROPOUT))


@pytest.mark.parametrize(("place", "kernel", "way"), DROPPING)
def test_a_tenth_of_the_weights_is_dropped_and_the_others_grow(place, kernel, way):
    skip_on_old_gpus(place, kernel)
    # A sequence has as many tokens as a head is wide, and its values are the identity: the result is the weights.
    rows, sequences, heads, width = (4, 8, 12, 64) if place == "cuda" else (4, 3, 12, 16)
    ids = torch.arange(sequences, device=place).repeat_interleave(width).expand(rows, -1)  # (B, S)
    projected = torch.randn(rows, sequences * width, 3, heads, width, generator=torch.Generator().manual_seed(5))
    projected[:, :, 2] = torch.eye(width).repeat(sequences, 1)[None, :, None]
    projected = projected.to(place, torch.float16 if place == "cuda" else torch.float32)
    exact, _ = exact_attention(projected, torch.zeros_like(projected[:, :, 0]), ids)  # (B, S, heads, D)
    torch.manual_seed(6)
    weights = runner(way, place)(projected, pattern_of(ids, kernel), DROPOUT).float()  # (B, S, heads, D)
    kept = weights != 0.0
    assert bool((weights - kept * exact / (1.0 - DROPOUT)).abs().max() <= TOLERANCE * exact.abs().max())
    # Small weights round to 0 in fp16, so they count only if they would not.
    large = exact > 2.0**-20  # (B, S, heads, D)
    count = int(large.sum())
    share = 1.0 - float((kept & large).sum()) / count
    assert abs(share - DROPOUT) <= 5.0 * (DROPOUT * (1.0 - DROPOUT) / count) ** 0.5  # five standard deviations
    tails = kept.unflatten(1, (sequences, width)).transpose(2, 3).flatten(0, 1).flatten(1, 2)  # (B * P, heads * n, D)
    assert len({tuple(mask.flatten().tolist()) for mask in tails}) == len(tails), "two sequences have the same mask"


@pytest.mark.parametrize(("place", "kernel"), [*PLACES, *ON_GPU])
def test_deterministic_gradients_are_the_same_each_time_and_others_need_not_be(place, kernel):
    skip_on_old_gpus(place, kernel)
    ids, inputs, direction = inputs_on(place, 7, 12, 64)

    def gradients():
        contexts = (attend(inputs, pattern_of(ids, kernel), 0.0) for _ in range(20))
        found = (torch.autograd.grad(context, inputs, direction)[0] for context in contexts)
        return {gradient.cpu().numpy().tobytes() for gradient in found}

    try:
        torch.use_deterministic_algorithms(True)
        assert len(gradients()) == 1
    finally:
        torch.use_deterministic_algorithms(False)
    # The control: blocks of keys add to one gradient of the queries in any order. So the switch has done something.
    assert place == "cpu" or kernel != "flash" or len(gradients()) > 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
def test_the_masked_kernel_is_not_cudnn_s():
    ids = rows_of_sequences(2, 512).cuda()
    projected = torch.randn(2, 512, 3, 12, 64, device="cuda", dtype=torch.float16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        attend(projected, AttentionPattern.for_packed_rows(ids, "masked"), 0.0)
    assert not any("cudnn_attention" in event.key for event in profile.key_averages())
