"""What makes products, attention and dropout fast on a CPU, and gradients in 16 bits right.

The results are those of torch's own functions, up to rounding and the masks that dropout draws.

For fp32 on a CPU, torch 2.13 calls MKL. torch also contains oneDNN, which it calls for bf16. On an AMD EPYC with
AVX-512, oneDNN takes about half as long as MKL. On an AMD EPYC with AVX2 alone it takes 1.1 to 1.5 times as long, on an
Intel Xeon 1.0 to 1.9 times. This was measured forward and backward, from albert-tiny's sizes to albert-base's.

In 16 bits torch 2.13 adds up the gradients of LayerNorm and of embeddings over the tokens in 16 bits, too, on a CPU. A
sum in bf16 that is 256 times as large as what is added to it no longer grows. Of random gradients of 20,000 tokens,
that of a LayerNorm's bias is 89 % off (tests/model/layers/test_processor.py). `LayerNorm` and `Embedding` add up in
fp32, as a GPU does.

Legend of the shapes: T tokens or rows of a matrix, N tokens of one sequence or outputs, K inputs, D head_dim.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from model.layers.torch_operators import HAS_ONEDNN, onednn_product, softmax_gradient


def _is_intel() -> bool:
    """Whether Linux says that the first processor is Intel's. The whole file is slow to read on hosts of many cores."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return any(line.split()[-1:] == ["GenuineIntel"] for line in islice(file, 5))
    except OSError:
        return False


_USES_ONEDNN = HAS_ONEDNN and torch.backends.cpu.get_cpu_capability() == "AVX512" and not _is_intel()


class Linear(nn.Linear):
    """`nn.Linear`, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Maps (..., in_features) to (..., out_features)."""
        return linear(input, self.weight, self.bias)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Computes inputs weight^T + bias: (..., K), (N, K) and (N,) to (..., N)."""
    is_fp32_on_cpu = inputs.device.type == "cpu" and inputs.dtype == torch.float32
    if _USES_ONEDNN and is_fp32_on_cpu and not torch.compiler.is_compiling():
        return _OneDnnLinear.apply(inputs, weight, bias)
    return functional.linear(inputs, weight, bias)  # (..., N)


def _adds_up_in_16_bits(weight: Tensor) -> bool:
    """Whether torch would add up the gradient of `weight` in 16 bits. What inductor compiles adds up in fp32."""
    is_16_bit_on_cpu = weight.device.type == "cpu" and weight.element_size() == 2
    return is_16_bit_on_cpu and torch.is_grad_enabled() and not torch.compiler.is_compiling()


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm`, whose gradients are added up in fp32."""

    def forward(self, input: Tensor) -> Tensor:
        """Maps (..., H) to (..., H)."""
        if not _adds_up_in_16_bits(self.weight):
            return super().forward(input)

        def normalise(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return functional.layer_norm(input, self.normalized_shape, weight, bias, self.eps)

        return _GradientsInFp32.apply(normalise, input, self.weight, self.bias)


class Embedding(nn.Embedding):
    """`nn.Embedding`, whose gradient is added up in fp32."""

    def forward(self, input: Tensor) -> Tensor:
        """Maps int64 (...) to (..., E)."""
        if not _adds_up_in_16_bits(self.weight):
            return super().forward(input)
        # Most rows of a table are in no batch. Those that are get their sums once, and nothing is added in 16 bits.
        used, places = input.unique(return_inverse=True)  # (U,), (...)
        return functional.embedding(places, functional.embedding(used, self.weight).float()).to(self.weight.dtype)


class Dropout(nn.Dropout):
    """`nn.Dropout`, computed by `dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Maps (...) to (...)."""
        return dropout(input, self.p if self.training else 0.0)


def dropout(inputs: Tensor, probability: float) -> Tensor:
    """`functional.dropout` below 1; on a CPU in a third of its time, nearly all of which is drawing random numbers."""
    if not probability or inputs.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.dropout(inputs, probability)
    return inputs * _factors(_draw_kept(inputs.shape, probability), probability, inputs.dtype)


def _draw_kept(shape: torch.Size, probability: float) -> Tensor:
    """Draws what dropout keeps: uint8, 1 or 0. Four elements share 64 random bits, so a probability is n / 2^16."""
    numbers = torch.empty(-(-shape.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    numbers = numbers[: shape.numel()].view(shape)
    return torch.ge(numbers, int(probability * 2**16) - 2**15, out=torch.empty(shape, dtype=torch.uint8))


def _factors(kept: Tensor, probability: float, dtype: torch.dtype) -> Tensor:
    return kept.to(dtype).mul_(1.0 / (1.0 - probability))


class _GradientsInFp32(torch.autograd.Function):
    """Calls a function of tensors in 16 bits. The backward pass calls it again in fp32; only the tensors are saved."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        return function(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        copies = [tensor.detach().float().requires_grad_(needs) for tensor, needs in zip(ctx.saved_tensors, needed)]
        with torch.enable_grad():
            output = ctx.function(*copies)
        found = iter(torch.autograd.grad(output, [one for one in copies if one.requires_grad], gradient.float()))
        return None, *(next(found).to(gradient.dtype) if needs else None for needs in needed)


class _OneDnnLinear(torch.autograd.Function):
    """Saves for the backward pass what `functional.linear` saves: inputs and weight."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return onednn_product(inputs.flatten(0, -2), weight, bias).view(*inputs.shape[:-1], len(weight))  # (..., N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        above = gradient.flatten(0, -2)  # (T, N)
        of_inputs = onednn_product(above, weight.T).view(inputs.shape) if needs_inputs else None  # (..., K)
        of_weight = onednn_product(above.T, inputs.flatten(0, -2).T) if needs_weight else None  # (N, K)
        of_bias = above.sum(0) if needs_bias else None  # (N,)
        return of_inputs, of_weight, of_bias


def attend_by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, drop: float) -> Tensor:
    """Attention of (B, heads, S, D) under `mask` as plain matrix products, for bf16 and for dropout.

    There torch 2.13 has no fused kernel with dropout, and in bf16 the backward pass of the one without takes 1.3 times
    (S = 512) to 11 times (S = 64, D = 16) as long.
    """
    scores = query @ (key * key.shape[-1] ** -0.5).transpose(-2, -1)  # (B, heads, S, S)
    if mask is not None:
        # Faster than to fill the scores: the sum has no backward pass of its own.
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, -torch.inf)
    return dropout(torch.softmax(scores, dim=-1), drop) @ value  # (B, heads, S, D)


def attend_per_sequence(projected: Tensor, lengths: list[int], dropout: float) -> Tensor:
    """Computes softmax(query key^T / sqrt(D)) value inside each sequence, with `dropout` on the weights.

    It computes nothing between two sequences. A CPU gains nothing from one large masked product: compared with the
    masked kernels of torch 2.13, rows of six sequences of 85 tokens take a fifth of the time, and rows of one sequence
    of 512 tokens in bf16 take two thirds.

    `projected` (T, 3, heads, D) holds query, key and value, sequence after sequence; `lengths` are those of the
    sequences and add up to T. Returns (T, heads, D). The backward pass recomputes the weights.
    """
    return _AttentionPerSequence.apply(projected, lengths, dropout)


class _AttentionPerSequence(torch.autograd.Function):
    """Saves `projected` for the backward pass and, with dropout, one byte for each weight."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, lengths: list[int], dropout: float) -> Tensor:
        context = projected.new_empty(projected.shape[0], *projected.shape[2:])  # (T, heads, D)
        kept = []
        for part, result in zip(projected.split(lengths), context.split(lengths)):
            query, key, value = part.permute(1, 2, 0, 3).unbind(0)  # (heads, N, D) each
            weights = _weights(query, key)  # (heads, N, N)
            if dropout > 0.0:
                kept.append(_draw_kept(weights.shape, dropout))  # (heads, N, N)
                weights *= _factors(kept[-1], dropout, weights.dtype)  # (heads, N, N)
            result.copy_(torch.bmm(weights, value).transpose(0, 1))  # (N, heads, D)
        ctx.save_for_backward(projected, *kept)
        ctx.lengths, ctx.dropout = lengths, dropout
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        projected, *kept = ctx.saved_tensors
        gradients = torch.empty_like(projected)  # (T, 3, heads, D)
        for number, (part, result, above) in enumerate(
            zip(projected.split(ctx.lengths), gradients.split(ctx.lengths), gradient.split(ctx.lengths))
        ):
            query, key, value = part.permute(1, 2, 0, 3).unbind(0)  # (heads, N, D) each
            above = above.transpose(0, 1)  # (heads, N, D)
            scale = query.shape[-1] ** -0.5
            weights = dropped = _weights(query, key)  # (heads, N, N)
            of_weights = torch.bmm(above, value.mT)  # (heads, N, N)
            if kept:
                factor = _factors(kept[number], ctx.dropout, weights.dtype)  # (heads, N, N)
                dropped, of_weights = weights * factor, of_weights.mul_(factor)  # (heads, N, N) each
            of_scores = softmax_gradient(of_weights, weights)  # (heads, N, N)
            result[:, 0] = (torch.bmm(of_scores, key) * scale).transpose(0, 1)  # (N, heads, D)
            result[:, 1] = torch.bmm(of_scores.mT, query * scale).transpose(0, 1)  # (N, heads, D)
            result[:, 2] = torch.bmm(dropped.mT, above).transpose(0, 1)  # (N, heads, D)
        return gradients, None, None


def _weights(query: Tensor, key: Tensor) -> Tensor:
    """Attention weights (heads, N, N) of query and key (heads, N, D)."""
    return functional.softmax(torch.bmm(query * query.shape[-1] ** -0.5, key.mT), dim=-1)  # (heads, N, N)
