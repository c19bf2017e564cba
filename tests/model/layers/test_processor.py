"""The products of a CPU are those of torch, with their gradients, whichever library computes them."""

import pytest
import torch
from torch.nn import functional

from model.layers import processor


@pytest.mark.parametrize("shape", [(7, 24), (2, 5, 24)])
def test_linear_is_torchs_with_onednn_and_without(shape, monkeypatch):
    torch.manual_seed(0)
    values = [torch.randn(*shape), torch.randn(40, 24), torch.randn(40)]  # (..., K), (N, K), (N,)
    above = torch.randn(*shape[:-1], 40)  # (..., N)
    results = []
    for function, uses_onednn in ((functional.linear, False), (processor.linear, False), (processor.linear, True)):
        monkeypatch.setattr(processor, "_USES_ONEDNN", uses_onednn)
        leaves = [value.clone().requires_grad_() for value in values]
        output = function(*leaves)
        assert ("OneDnn" in type(output.grad_fn).__name__) == uses_onednn
        results.append([output, *torch.autograd.grad(output, leaves, above)])
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])
