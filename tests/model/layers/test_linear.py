"""Compares the matrix products of the layers with float64."""

import pytest
import torch

from model.layers.linear import Linear, linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24), (1, 1, 24)])
def test_product_and_gradients(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, weight, bias, direction = (
        torch.randn(size, generator=generator).to(dtype) for size in (shape, (7, 24), (7,), (*shape[:-1], 7))
    )
    exact = [tensor.double().requires_grad_() for tensor in (inputs, weight, bias)]
    expected = exact[0] @ exact[1].T + exact[2]
    expected.backward(direction.double())
    tensors = [tensor.requires_grad_() for tensor in (inputs, weight, bias)]
    found = linear(*tensors)
    found.backward(direction)
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2  # bf16 rounds at 2**-9 of values up to 15
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    for tensor, wanted in zip(tensors, exact, strict=True):
        assert tensor.grad is not None
        torch.testing.assert_close(tensor.grad.double(), wanted.grad, atol=tolerance, rtol=tolerance)


def test_transposed_inputs_and_gradients() -> None:
    inputs = torch.randn(24, 5, generator=torch.Generator().manual_seed(0)).T.requires_grad_()
    layer = Linear(24, 7)
    layer(inputs).T.contiguous().T.sum().backward()
    torch.testing.assert_close(layer(inputs), torch.nn.functional.linear(inputs, layer.weight, layer.bias))
    torch.testing.assert_close(inputs.grad, layer.weight.sum(0).expand(5, 24))
