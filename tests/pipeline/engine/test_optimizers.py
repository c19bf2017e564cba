"""The optimizers that a DeepSpeed JSON can name: who makes them, with which parameters, and torch's Adam under ZeRO."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from pipeline.engine import optimizers, state
from pipeline.engine.lamb import Lamb
from pipeline.engine.optimizers import parameter_groups
from tests.pipeline.workers import processes
from tests.pipeline.workers.cases.optimizer import reference, train_each

pytestmark = pytest.mark.slow

OFFLOADED = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}

VALUES = {"lr": 0.5, "betas": (0.8, 0.7), "eps": 0.25, "weight_decay": 0.125}


@pytest.mark.parametrize("kind", list(optimizers.OWN))
def test_the_project_s_optimizers_take_every_parameter_that_the_json_may_have(kind: str) -> None:
    params = {name: VALUES[name] for name in optimizers.PARAMETERS[kind].model_fields}
    own = optimizers.make_own(
        {"type": kind, "params": params}, parameter_groups(nn.Linear(2, 2), params["weight_decay"])
    )
    assert type(own) is optimizers.OWN[kind]
    decayed, plain = own.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.125, 0.0)
    for name in params.keys() - {"weight_decay"}:
        assert [decayed[name], plain[name]] == [VALUES[name]] * 2, name


def test_adamw_of_the_paper_is_lamb_without_trust_ratios() -> None:
    block = {"type": "AdamW", "params": {"lr": 0.5, "weight_decay": 0.1, "bias_correction": False}}
    own = optimizers.make_own(block, parameter_groups(nn.Linear(2, 2)))
    assert isinstance(own, Lamb)
    assert [group["trust_ratio"] for group in own.param_groups] == [False, False]


@pytest.mark.parametrize(
    ("kind", "params", "rest", "made_by"),
    [
        ("Lamb", {}, {}, "project"),
        ("AdamW", {"bias_correction": False}, {}, "project"),
        ("AdamW", {}, {}, "torch"),
        ("Adam", {"bias_correction": True}, {}, "torch"),
        ("Adam", {"torch_adam": False}, {}, "torch"),
        ("Adam", {"bias_correction": False}, {}, "project"),
        ("AdamW", {}, OFFLOADED, "DeepSpeed"),
        ("AdamW", {"torch_adam": True}, OFFLOADED, "torch"),
    ],
)
def test_the_json_decides_whose_optimizer_it_is(
    kind: str, params: dict[str, Any], rest: dict[str, Any], made_by: str
) -> None:
    config = {"optimizer": {"type": kind, "params": params}, **rest}
    assert optimizers.uses_torch_adam(config) == (made_by == "torch")
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "weight_decay": 0.5, "trust_ratio": True}]
    own = optimizers.make_own(config["optimizer"], groups)
    assert (own is not None) == (made_by == "project")
    if made_by == "torch":
        assert optimizers.make_torch_adam(config, groups).param_groups[0]["weight_decay"] == 0.5


@pytest.mark.parametrize(("device", "fused"), [("cuda", True), ("cpu", None)])
def test_a_gpu_gets_the_fused_kernel(monkeypatch: pytest.MonkeyPatch, device: str, fused: bool | None) -> None:
    monkeypatch.setattr("deepspeed.accelerator.get_accelerator", lambda: SimpleNamespace(device_name=lambda: device))
    weight = torch.nn.Parameter(torch.zeros(3, device="meta"))
    for kind, mode, expected in (("Adam", False, torch.optim.Adam), ("Adam", True, torch.optim.AdamW)):
        config = {"optimizer": {"type": kind, "params": {"adam_w_mode": mode, "betas": [0.8, 0.9]}}}
        optimizer = optimizers.make_torch_adam(config, [{"params": [weight], "weight_decay": 0.0}])
        assert type(optimizer) is expected
        assert (optimizer.defaults["fused"], optimizer.defaults["betas"]) == (fused, (0.8, 0.9))
        # The fused kernel reads the number of steps on the device of the weights.
        state._prepare(optimizer, weight)
        assert optimizer.state[weight]["step"].device.type == ("meta" if fused else "cpu")


def test_adam_under_zero_is_adam_and_nothing_is_compiled(tmp_path: Path) -> None:
    found = processes.run(2, train_each, [0, 1, 2, 3], scratch=tmp_path)
    wanted = reference()
    for weights in found:
        assert weights.keys() == wanted.keys()
        for name, weight in weights.items():
            torch.testing.assert_close(weight, wanted[name], rtol=1e-4, atol=1e-6)
