"""Gradients that the layers sum themselves, beside those that autograd sums; outputs that are computed again."""

from collections import Counter

import pytest
import torch
from torch import Tensor

from model import AlbertForPreTraining, ExecutionOptions
from model.layers.shared_gradients import begin_sums, linear_with_sums
from tests.model.examples import randomise, tiny_config
from tests.model.test_packing import make_pair, pack

BATCH = pack([[make_pair(0, 9, 1), make_pair(2, 5, 0)], [make_pair(4, 12, 1)]], length=20)


def gradients(execution: ExecutionOptions, sharing: str = "all", dropout: float = 0.0) -> dict[str, Tensor]:
    """Those of one pass in fp64, each handed over once."""
    config = tiny_config(parameter_sharing=sharing, num_hidden_layers=4, hidden_dropout_prob=dropout)
    model = AlbertForPreTraining(config, execution)
    randomise(model, seed=5)
    model = model.double()
    calls: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: calls.update([name]))
    torch.manual_seed(3)
    output = model(**BATCH)
    (output.mlm_loss_sum + output.sentence_loss_sum).backward()
    assert set(calls.values()) == {1}
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize("what", ["none", "layer"])
def test_sums_of_the_layers_equal_those_of_autograd(sharing: str, what: str) -> None:
    expected = gradients(ExecutionOptions(), sharing, dropout=0.2)
    found = gradients(ExecutionOptions(what, sum_gradients=True), sharing, dropout=0.2)
    assert found.keys() == expected.keys()
    for name, one in found.items():
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(one, expected[name], rtol=0, atol=1e-13 * max(1.0, scale), msg=name)


def test_the_sum_of_many_layers_is_not_rounded_to_16_bits() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(8, 8).bfloat16())
    bias = torch.nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
    inputs = torch.randn(400, 5, 8).bfloat16()
    exact = inputs.double().sum((0, 1)).expand(8, 8)  # the gradient of the sum of all outputs
    errors = []
    for summed in (True, False):
        weight.grad = bias.grad = None
        sums = begin_sums(weight, bias)
        layers = [
            linear_with_sums(one, weight, bias, sums) if summed else torch.nn.functional.linear(one, weight, bias)
            for one in inputs
        ]
        torch.stack([layer.sum() for layer in layers]).sum().backward()
        assert bias.grad is not None
        assert weight.grad is not None
        assert not summed or torch.equal(bias.grad, torch.full_like(bias, 2000))
        errors.append(float((weight.grad.double() - exact).norm() / exact.norm()))
    assert errors[0] < 2**-9 < errors[1] / 4


def test_a_pass_without_gradients_makes_no_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.attention.self_attention.begin_sums", lambda *_: pytest.fail("made sums"))
    model = AlbertForPreTraining(tiny_config(), ExecutionOptions(sum_gradients=True))
    with torch.no_grad():
        assert torch.isfinite(model(**BATCH).mlm_loss_sum)
