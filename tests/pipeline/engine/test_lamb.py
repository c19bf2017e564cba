"""LAMB: against the formulas, and one process wherever ZeRO puts the elements; the other optimizers of a JSON."""

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from deepspeed.ops.op_builder.builder import OpBuilder
from torch import Tensor, nn

from pipeline.engine import deepspeed_config, optimizers
from pipeline.engine.engine_state import initialise
from pipeline.engine.hardware import Hardware
from pipeline.engine.lamb import Lamb, TensorSlice, squared_norms
from pipeline.engine.optimizers import parameter_groups
from tests.model.examples import Synchronisations
from tests.pipeline.workers import processes, training

STEPS = 20


@dataclass(frozen=True)
class Case:
    """One way to run the same training."""

    stage: int
    precision: str = "fp32"
    accumulation: int = 1  # micro-batches of a step on each rank
    accumulate_fp32: bool = False  # bf16 gradients are added up in fp32, which is another optimizer class at stage 1
    attached: bool = True  # False makes LAMB treat each flat buffer as one tensor

    def settings(self, world: int) -> dict[str, Any]:
        extra = {"data_types": {"grad_accum_dtype": "fp32"}} if self.accumulate_fp32 else {}
        return training.config(self.stage, self.precision, world, self.accumulation, **extra)


def train_all(cases: list[Case]) -> dict[Case, Any]:
    """The outcome of each case."""
    outcomes = {}
    for case in cases:
        engine = training.make_engine(case.settings(torch.distributed.get_world_size()), attach=case.attached)
        training.train(engine, 0, STEPS)
        lamb = engine.basic_optimizer
        outcomes[case] = SimpleNamespace(
            weight=training.full(engine),
            exp_avg=training.full(engine, "exp_avg"),
            model=training.model_weights(engine),  # what the model computes with
            trust_ratios=dict(zip(lamb.tensor_names, lamb.last_trust_ratios.tolist())),
        )
        training.close(engine)
    return outcomes


def test_first_step_by_hand():
    # w = (3, 4), g = (1, -2), lr 0.1, wd 0.01:
    # m = 0.1 g = (0.1, -0.2); v = 0.001 g^2 = (0.001, 0.004); m / sqrt(v) = (3.1622777, -3.1622777)
    # u = (3.1622777 + 0.03, -3.1622777 + 0.04) = (3.1922777, -3.1222777) (eps 1e-6 moves the fifth digit)
    # |w| = 5, |u| = 4.4653...; w' = w - 0.1 * 5 / |u| * u
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    lamb = Lamb([weight], lr=0.1)
    weight.grad = torch.tensor([1.0, -2.0])
    lamb.step()
    u = (0.1 / (math.sqrt(0.001) + 1e-6) + 0.03, -0.2 / (math.sqrt(0.004) + 1e-6) + 0.04)
    rate = 0.1 * 5.0 / math.hypot(*u)
    assert weight.tolist() == pytest.approx([3.0 - rate * u[0], 4.0 - rate * u[1]], rel=1e-6)
    assert lamb.last_trust_ratios.tolist() == pytest.approx([5.0 / math.hypot(*u)], rel=1e-6)
    assert lamb.state[weight]["exp_avg"].tolist() == pytest.approx([0.1, -0.2])
    assert lamb.state[weight]["exp_avg_sq"].tolist() == pytest.approx([0.001, 0.004])
    assert lamb.state[weight]["step"] == 1


@pytest.mark.parametrize(
    ("weight", "gradient", "decay", "moved"),
    [
        # |w| = 0: the ratio is 1, so w' = -lr * u with u = 0.1 / sqrt(0.001)
        (0.0, 1.0, 0.01, -0.1 * 0.1 / (math.sqrt(0.001) + 1e-6)),
        # |u| = 0: nothing moves
        (2.0, 0.0, 0.0, 2.0),
        # decay alone: u = wd * w, r = 1 / wd, so w' = w - lr * w
        (2.0, 0.0, 0.01, 1.8),
        # no clamp: r = 1000 / 3.16 is far above 10
        (1000.0, 1.0, 0.0, 900.0),
    ],
)
def test_trust_ratio_at_the_edges(weight, gradient, decay, moved):
    parameter = nn.Parameter(torch.tensor([weight]))
    lamb = Lamb([parameter], lr=0.1, weight_decay=decay)
    parameter.grad = torch.tensor([gradient])
    lamb.step()
    assert parameter.item() == pytest.approx(moved, rel=1e-5)


def test_norms_of_large_tensors_are_exact():
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(size, generator=generator) for size in (5_000_001, 3, 1 << 16)]
    wanted = [tensor.double().square().sum().item() for tensor in tensors]
    assert squared_norms(tensors).tolist() == pytest.approx(wanted, rel=1e-6)
    assert tensors[0].norm().item() ** 2 != pytest.approx(wanted[0], rel=1e-5)  # what it is there for


def place(name: str, flat: Tensor, offset: int, length: int) -> TensorSlice:
    return TensorSlice(name, (length,), 0, 0, length, flat, offset)


def test_pieces_of_a_flat_buffer_are_tensors_and_padding_is_left_alone():
    torch.manual_seed(0)
    first, second = torch.randn(5), torch.randn(3)
    gradients = [torch.randn(5), torch.randn(3)]
    alone = [nn.Parameter(first.clone()), nn.Parameter(second.clone())]
    by_tensor = Lamb(alone, lr=0.1)
    nan = torch.full((2,), math.nan)
    flat = nn.Parameter(torch.cat([first, nan, second, nan]))
    in_flat = Lamb([flat], lr=0.1)
    in_flat.attach([place("a", flat, 0, 5), place("b", flat, 7, 3), place("c", flat, 0, 0)], None)
    for _ in range(3):
        for parameter, gradient in zip(alone, gradients):
            parameter.grad = gradient.clone()
        flat.grad = torch.cat([gradients[0], nan, gradients[1], nan])
        by_tensor.step()
        in_flat.step()
    torch.testing.assert_close(flat.data[:5], alone[0].data, rtol=1e-6, atol=0)
    torch.testing.assert_close(flat.data[7:10], alone[1].data, rtol=1e-6, atol=0)
    assert in_flat.tensor_names == ["a", "b", "c"]
    assert in_flat.last_trust_ratios[:2].tolist() == pytest.approx(by_tensor.last_trust_ratios.tolist())
    assert in_flat.last_trust_ratios[2] == 1.0


def test_a_parameter_it_was_not_told_of_is_an_error():
    known, unknown = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    lamb = Lamb([known, unknown])
    lamb.attach([place("known", known, 0, 2)], None)
    known.grad = unknown.grad = torch.ones(2)
    with pytest.raises(KeyError):
        lamb.step()


def test_a_step_does_not_wait_for_the_device():
    model = training.SharedModel()
    lamb = Lamb(parameter_groups(model), lr=0.1)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        with Synchronisations() as synchronisations:
            lamb.step()
        assert synchronisations.found == []


class Tied(nn.Module):
    """A matrix used twice, a LayerNorm, and biases by three names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3)  # 21
        self.linear = nn.Linear(3, 5)  # 15 + 5
        self.norm = nn.LayerNorm(3)  # 3 + 3
        self.decoder = nn.Linear(3, 7)  # tied + 7
        self.decoder.weight = self.embedding.weight
        self.mlm_bias = nn.Parameter(torch.zeros(7))  # 7
        self.bias = nn.Parameter(torch.zeros(2))  # 2


def test_groups_exclude_layer_norms_and_biases():
    model = Tied()
    scaled, plain = parameter_groups(model, weight_decay=0.02)
    assert (scaled["weight_decay"], scaled["trust_ratio"]) == (0.02, True)
    assert (plain["weight_decay"], plain["trust_ratio"]) == (0.0, False)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(p)] for p in scaled["params"]} == {"embedding.weight", "linear.weight"}
    biases = {"linear.bias", "norm.bias", "decoder.bias", "mlm_bias", "bias"}
    assert {names[id(p)] for p in plain["params"]} == {"norm.weight", *biases}


CASES = {
    2: [
        Case(0),
        Case(3),
        *[Case(stage, accumulation=2) for stage in range(4)],
        *[Case(stage, "bf16") for stage in range(4)],
        Case(1, "bf16", accumulation=2, accumulate_fp32=True),
        Case(1, attached=False),
    ],
    3: [*[Case(stage) for stage in range(4)], Case(2, "bf16")],
}


@pytest.fixture(scope="module", params=CASES, ids=lambda world: f"{world} ranks")
def outcomes(request, tmp_path_factory):
    """(world, outcome of each case there)."""
    world = request.param
    found = processes.run(world, train_all, CASES[world], scratch=tmp_path_factory.mktemp("lamb"))
    return world, found


@pytest.mark.slow
def test_fp32_is_the_same_on_every_stage_and_world_unless_lamb_takes_a_slice_for_a_tensor(outcomes):
    _, found = outcomes
    wanted, ratios = training.reference(STEPS), found[Case(0)].trust_ratios
    assert ratios.keys() == {
        *("embedding.weight", "projection.weight", "layer.weight", "back.weight", "scale", "unused.weight"),
    }
    start = training.reference(0)["weight"]
    assert training.difference(wanted["weight"], start) > 0.1  # the weights move by far more than the bound
    for case, outcome in found.items():
        if not case.attached:
            assert training.difference(outcome.weight, wanted["weight"]) > 0.1
        elif case.precision == "fp32":
            assert training.difference(outcome.weight, wanted["weight"]) < 1e-5, case
            assert training.difference(outcome.exp_avg, wanted["exp_avg"]) < 1e-4, case
            assert training.difference(outcome.model, outcome.weight) == 0.0, case
            assert outcome.trust_ratios == pytest.approx(ratios, rel=1e-4), case


# How far a run in bf16 may be from one with the same bf16 gradients of each rank, averaged exactly. A step moves a
# tensor by lr * r * |u| = lr * |w|, so an error e of u moves it off by lr * e, and 20 steps by 0.18 * e, where 0.18 is
# the sum of their learning rates. A gradient of this model is the sum of four uses of each weight behind at most 12
# rounded products, each with a relative error of half a unit in the last place (2^-9), and u = m / sqrt(v) doubles it:
# e < 2 * 4 * 12 * 2^-9 = 0.19. Tensors without a trust ratio move by up to lr * 3.2 an element instead, of the size of
# their own 0.1 to 1: another factor of 3.
BOUND = 3 * 0.18 * 0.19


@pytest.mark.slow
def test_bf16_weights_follow_fp32_masters(outcomes):
    world, found = outcomes
    wanted = training.reference(STEPS, parts=world, dtype=torch.bfloat16)
    for case, outcome in found.items():
        if case.precision == "bf16":
            assert training.difference(outcome.weight, wanted["weight"]) < BOUND, case
            for name, master in outcome.weight.items():
                assert torch.equal(outcome.model[name], master.bfloat16().float()), (case, name)


ADAM_STEPS, RATE, DECAY = 5, 0.01, 0.1
OPTIMIZER = {"type": "AdamW", "params": {"lr": RATE, "weight_decay": DECAY, "betas": [0.8, 0.99], "eps": 1e-4}}


def train_each(stages: list[int]) -> list[dict[str, Tensor]]:
    """The fp32 weights after ADAM_STEPS steps at each ZeRO stage. A compilation is an error."""
    world = torch.distributed.get_world_size()

    def fail(builder: Any, verbose: bool = True) -> None:
        raise AssertionError(f"{builder.name} would be compiled")

    found = []
    products = torch.backends.cuda.matmul
    products.allow_fp16_reduced_precision_reduction = products.allow_bf16_reduced_precision_reduction = True
    with mock.patch.object(OpBuilder, "jit_load", fail):
        for stage in stages:
            json = training.config(stage, "fp32", world, gradient_clipping=0.0, optimizer=OPTIMIZER)
            fitted = deepspeed_config.fit(json, world, Hardware("CPU", fp16=False, bf16=False))
            engine: Any = initialise(training.SharedModel(), fitted)[0]
            for group in engine.optimizer.param_groups:
                group["rate_share"] = 1.0
            training.train(engine, 0, ADAM_STEPS)
            assert not products.allow_fp16_reduced_precision_reduction
            assert not products.allow_bf16_reduced_precision_reduction
            assert type(engine.basic_optimizer) is torch.optim.AdamW
            found.append(training.full(engine))
            training.close(engine)
    return found


def adam_reference() -> dict[str, Tensor]:
    """The same in one process, without DeepSpeed."""
    model = training.SharedModel()
    params = OPTIMIZER["params"]
    optimizer = torch.optim.AdamW(parameter_groups(model, DECAY), betas=tuple(params["betas"]), eps=params["eps"])
    for step in range(ADAM_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate(step)
        optimizer.zero_grad()
        model(*training.batch(step)).backward()
        for parameter in model.parameters():  # without a gradient, torch would not decay the weight
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def meta_groups() -> list[dict[str, Any]]:
    return [{"params": [nn.Parameter(torch.zeros(3, device="meta"))], "weight_decay": 0.5, "trust_ratio": True}]


@pytest.mark.parametrize(
    ("kind", "params", "made", "ratio"),
    [
        ("Lamb", {}, Lamb, True),
        ("AdamW", {"bias_correction": False}, Lamb, False),
        ("Adam", {"bias_correction": False}, Lamb, False),
        ("AdamW", {}, torch.optim.AdamW, True),
        ("Adam", {"bias_correction": True}, torch.optim.AdamW, True),
        ("Adam", {"torch_adam": False, "adam_w_mode": False}, torch.optim.Adam, True),
    ],
)
def test_the_json_decides_whose_optimizer_it_is(kind, params, made, ratio):
    given = {"lr": 0.5, "betas": [0.8, 0.7], "eps": 0.25, "weight_decay": 0.125}
    config = {"optimizer": {"type": kind, "params": given | params}}
    optimizer = optimizers.make_optimizer(config, meta_groups())
    assert type(optimizer) is made
    assert made is Lamb or optimizer.defaults["fused"], "one pass over memory, on a CPU as well"
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.8, 0.7), 0.25)
    assert (group["weight_decay"], group["trust_ratio"]) == (0.5, ratio)  # the weight decay of its group


@pytest.mark.slow
def test_adam_under_zero_is_adam_and_nothing_is_compiled(tmp_path):
    alone = processes.run(1, train_each, [0], scratch=tmp_path)
    found = processes.run(2, train_each, [0, 1, 2, 3], scratch=tmp_path)
    wanted = adam_reference()
    for weights in alone + found:
        assert weights.keys() == wanted.keys()
        for name, weight in weights.items():
            torch.testing.assert_close(weight, wanted[name], rtol=1e-4, atol=1e-6)
