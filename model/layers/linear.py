"""Linear layers that use oneDNN for fp32 on a CPU.

For fp32 on a CPU, torch 2.13 calls MKL. torch also contains oneDNN, which it calls for bf16. On an AMD EPYC with
AVX-512, oneDNN takes about half as long as MKL. This was measured forward and backward, from albert-tiny's sizes to
albert-base's.

Legend of the shapes: T rows of a matrix, K inputs, N outputs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Linear):
    """`nn.Linear`, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Maps (..., in_features) to (..., out_features)."""
        return linear(input, self.weight, self.bias)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Computes inputs weight^T + bias: (..., K), (N, K) and (N,) to (..., N)."""
    if _HAS_ONEDNN and _is_fp32_on_cpu(inputs) and not torch.compiler.is_compiling():
        return _OneDnnLinear.apply(inputs, weight, bias)
    return functional.linear(inputs, weight, bias)  # (..., N)


def _is_fp32_on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32


class _OneDnnLinear(torch.autograd.Function):
    """Saves for the backward pass what `functional.linear` saves: inputs and weight."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs.flatten(0, -2), weight, bias).view(*inputs.shape[:-1], len(weight))  # (..., N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        above = gradient.flatten(0, -2)  # (T, N)
        of_inputs = _product(above, weight.T).view(inputs.shape) if needs_inputs else None  # (..., K)
        of_weight = _product(above.T, inputs.flatten(0, -2).T) if needs_weight else None  # (N, K)
        of_bias = above.sum(0) if needs_bias else None  # (N,)
        return of_inputs, of_weight, of_bias


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes left right^T + bias: (T, K), (N, K) and (N,) to (T, N)."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")  # (T, N)
