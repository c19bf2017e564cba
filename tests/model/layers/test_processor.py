"""The products of a CPU are those of torch, whichever library computes them, and torch has no public way to them.

It still lacks one for each operator in model/layers/torch_operators.py. Otherwise the operator can go.
"""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import varlen

from model.layers import processor, torch_operators


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


def errors(layer, inputs, above):
    """How far the gradients of a layer in 16 bits are from those in float64, relative to their norms."""
    layer(inputs).backward(above)
    exact = copy.deepcopy(layer).double().requires_grad_()
    exact.zero_grad()
    exact(inputs.double() if inputs.is_floating_point() else inputs).backward(above.double())
    pairs = zip(layer.parameters(), exact.parameters(), strict=True)
    return [((one.grad - other.grad).norm() / other.grad.norm()).item() for one, other in pairs]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["LayerNorm", "Embedding"])
def test_gradients_in_16_bits_are_added_up_in_fp32(kind, dtype):
    """torch's own are 10 to 89 % off here, because they add up in 16 bits. When they no longer do, ours can go."""
    torch.manual_seed(0)
    states, above = torch.randn(20_000, 24).to(dtype), (torch.randn(20_000, 24) + 0.5).to(dtype)
    sizes, inputs = ((24,), states) if kind == "LayerNorm" else ((2, 24), torch.arange(20_000) % 2)
    ours, theirs = (getattr(module, kind)(*sizes).to(dtype) for module in (processor, nn))
    assert max(errors(ours, inputs, above)) < 0.005
    assert max(errors(theirs, inputs, above)) > 0.09


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.999995])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_dropout_drops_each_element_alone_with_its_probability_and_both_ways(probability, dtype):
    inputs = torch.ones(1_000_003, dtype=dtype, requires_grad=True)
    torch.manual_seed(1)
    found = processor.dropout(inputs, probability)
    (gradient,) = torch.autograd.grad(found.sum(), inputs)
    torch.testing.assert_close(gradient, found, rtol=0.0, atol=0.0)
    values = found.unique().float()
    torch.testing.assert_close(values, torch.tensor([0.0, 1 / (1 - probability)]), rtol=0.003, atol=0.0)
    kept = (found != 0).double()
    deviation = (probability * (1 - probability)) ** 0.5
    bound = 5 * deviation / 1000 + 2**-16
    assert abs(kept.mean() + probability - 1) < bound
    for distance in range(1, 9):  # four elements share a random number
        together = ((kept[distance:] - 1 + probability) * (kept[:-distance] - 1 + probability)).mean()
        assert abs(together) < 5 * deviation**2 / 1000 + 2**-15, distance
    torch.manual_seed(1)
    assert torch.equal(processor.dropout(inputs, probability), found)
    assert not torch.equal(processor.dropout(inputs, probability), found)


def test_dropout_ends_with_the_training():
    inputs = torch.ones(1000)
    layer = processor.Dropout(0.5)
    assert not torch.equal(layer(inputs), inputs)
    assert torch.equal(layer.eval()(inputs), inputs)
    assert torch.equal(processor.Dropout(0.0)(inputs), inputs)


@pytest.mark.parametrize("shape", [(7,), (3, 5)], ids=str)
def test_tokens_that_occur_often_and_never_get_the_sums_of_torch(shape):
    torch.manual_seed(0)
    ids = torch.randint(2, 6, shape)  # 0, 1, 6 and 7 never
    above = torch.randn(*shape, 4).bfloat16()
    layer = processor.Embedding(8, 4).bfloat16()
    exact = nn.Embedding.from_pretrained(layer.weight.double(), freeze=False)
    layer(ids).backward(above)
    exact(ids).backward(above.double())
    assert torch.equal(layer(ids).double(), exact(ids))
    assert torch.equal(layer.weight.grad, exact.weight.grad.bfloat16())


@pytest.mark.slow
def test_inductor_adds_up_in_fp32():
    torch.manual_seed(0)
    states, above = torch.randn(20_000, 24).bfloat16(), (torch.randn(20_000, 24) + 0.5).bfloat16()
    layer = processor.LayerNorm(24).bfloat16()
    plain = copy.deepcopy(layer)
    torch.compile(layer, fullgraph=True)(states).backward(above)
    plain(states).backward(above)
    for one, other in zip(layer.parameters(), plain.parameters()):
        torch.testing.assert_close(one.grad, other.grad, rtol=0.02, atol=1.0)


def test_no_public_attention_over_sequences_has_dropout():
    assert not [name for name in inspect.signature(varlen.varlen_attn).parameters if "drop" in name], "call varlen_attn"


def test_torch_does_not_call_onednn_for_fp32():
    inputs, weight, bias = torch.randn(7, 24), torch.randn(40, 24), torch.randn(40)
    with torch.profiler.profile() as profile:
        functional.linear(inputs, weight, bias)
    names = {event.key for event in profile.key_averages()}
    assert "aten::addmm" in names, names
    assert not [name for name in names if "mkldnn" in name], "functional.linear calls oneDNN itself"
    torch.testing.assert_close(torch_operators.onednn_product(inputs, weight, bias), inputs @ weight.T + bias)


def test_no_public_function_has_the_gradient_of_a_softmax():
    assert not [name for module in (torch, functional) for name in dir(module) if name.startswith("softmax_back")]
    scores = torch.randn(2, 5, 7, requires_grad=True)
    weights, above = torch.softmax(scores, -1), torch.randn(2, 5, 7)
    (expected,) = torch.autograd.grad(weights, scores, above)
    torch.testing.assert_close(torch_operators.softmax_gradient(above, weights.detach()), expected)
