"""Operators of torch that have no public name, and why each is called.

tests/model/layers/test_processor.py fails when torch has a public way, and the operator here can go.
"""

import torch
from torch import Tensor

HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def onednn_product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes left right^T + bias by oneDNN: (T, K), (N, K) and (N,) to (T, N), fp32 on a CPU.

    `torch.nn.functional.linear` has MKL compute it, and no setting changes that.
    """
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")  # (T, N)


def softmax_gradient(gradient: Tensor, weights: Tensor) -> Tensor:
    """The gradient of scores (..., N), given `weights`, their softmax, and its gradient: w * (g - sum(w * g)).

    The formula in torch's public functions makes two more passes over the arrays.
    """
    return torch.ops.aten._softmax_backward_data(gradient, weights, -1, weights.dtype)  # (..., N)


def flash_attention(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, longest: int, drop: float) -> Tensor:
    """FlashAttention inside each sequence of one long row, with dropout `drop`: fp16 or bf16 (T, heads, D) on a GPU.

    `torch.nn.attention.varlen.varlen_attn` calls the same operator, but has no dropout.

    Args:
        cu_seqlens: int32 (N + 1,), where each sequence begins.
        longest: a bound on the length of a sequence.
    """
    scale = query.shape[-1] ** -0.5
    context, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, cu_seqlens, cu_seqlens, longest, longest, drop, False, False, scale=scale
    )  # (T, heads, D)
    return context


def for_any_length(tensor: Tensor) -> None:
    """Makes a compiled function that gets `tensor` (N, ...) one graph for any N, from its first call on.

    Otherwise the second N, which comes in mid-run, compiles all again.
    """
    torch._dynamo.maybe_mark_dynamic(tensor, 0)
