"""The gradients of a linear layer that a pass applies many times, summed in fp32 without autograd.

autograd makes a gradient of the weight in each application, in the dtype of the model, and adds them up: a matrix of
the size of the weight is written, read and rounded for each layer. Here each application adds its product to one
buffer, and the weight gets the sum once, after its last application.

Legend of the shapes: T rows of a matrix, K inputs, N outputs.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class GradientSums(NamedTuple):
    """Where the applications of one linear layer add their gradients in one pass."""

    weight: Tensor
    """(N, K), fp32 (fp64 for a weight in fp64)."""

    bias: Tensor
    """(N,), of the same dtype."""

    token: Tensor
    """(), takes no part in the computation. autograd waits for the gradient of its last use, then hands over the
    sums."""


def begin_sums(weight: Tensor, bias: Tensor) -> GradientSums:
    """Makes sums of zeros for weight (N, K) and bias (N,), which get the gradients at the end of the backward pass."""
    dtype = torch.promote_types(weight.dtype, torch.float32)
    of_weight = torch.zeros_like(weight, dtype=dtype, requires_grad=False)  # (N, K)
    of_bias = torch.zeros_like(bias, dtype=dtype, requires_grad=False)  # (N,)
    return GradientSums(of_weight, of_bias, _HandOver.apply(weight, bias, of_weight, of_bias))


def of_one_layer(sums: GradientSums | None) -> GradientSums | None:
    """The same memory as tensors of their own. autograd counts the writes to a tensor, and a compiled graph may refuse
    sums that the graph of another layer has written to."""
    return sums and GradientSums(sums.weight.data, sums.bias.data, sums.token)


class _HandOver(torch.autograd.Function):
    """The node behind the token: autograd calls it after all applications."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, of_weight: Tensor, of_bias: Tensor) -> Tensor:
        ctx.sums, ctx.dtype = (of_weight, of_bias), weight.dtype
        return weight.new_zeros(())  # ()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (of_weight, of_bias), ctx.sums = ctx.sums, None
        return of_weight.to(ctx.dtype), of_bias.to(ctx.dtype), None, None


def linear_with_sums(inputs: Tensor, weight: Tensor, bias: Tensor, sums: GradientSums) -> Tensor:
    """Computes inputs weight^T + bias: (..., K), (N, K) and (N,) to (..., N). The gradients of both go to `sums`."""
    return _LinearWithSums.apply(inputs, weight.detach(), bias.detach(), *sums)


class _LinearWithSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, of_weight: Tensor, of_bias: Tensor, token: Tensor
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.sums = of_weight, of_bias  # not saved: autograd would refuse what changes after the forward pass
        return torch.nn.functional.linear(inputs, weight, bias)  # (..., N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, Tensor]:
        inputs, weight = ctx.saved_tensors
        of_weight, of_bias = ctx.sums
        above = gradient.flatten(0, -2)  # (T, N)
        if torch.compiler.is_compiling():
            _add_product_op(of_weight, above, inputs.flatten(0, -2))
        else:
            add_product(of_weight, above, inputs.flatten(0, -2))
        of_bias += above.sum(0, dtype=of_bias.dtype)  # (N,)
        return gradient @ weight, None, None, None, None, gradient.new_zeros(())  # (..., K) and ()


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds left^T right, of (T, N) and (T, K), to `total` (N, K), without rounding the product to their dtype."""
    if left.is_cuda and left.dtype != total.dtype:
        torch.addmm(total, left.T, right, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(left.T.to(total.dtype), right.to(total.dtype))


# In a compiled graph `add_product` is one operator, which writes to the sum itself.
_add_product_op = torch.library.custom_op("albert::add_product", add_product, mutates_args=("total",))
