"""The optimizers that a DeepSpeed JSON can name: who makes them, with which parameters, and torch's Adam under ZeRO."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from pipeline.engine import engine_state, optimizers
from pipeline.engine.lamb import Lamb
from tests.pipeline.workers import processes
from tests.pipeline.workers.cases.optimizer import reference, train_each


def groups() -> list[dict[str, Any]]:
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
def test_the_json_decides_whose_optimizer_it_is(kind: str, params: dict[str, Any], made: type, ratio: bool) -> None:
    given = {"lr": 0.5, "betas": [0.8, 0.7], "eps": 0.25, "weight_decay": 0.125}
    config = {"optimizer": {"type": kind, "params": given | params}}
    optimizer = optimizers.make_optimizer(config, groups())
    assert type(optimizer) is made
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.8, 0.7), 0.25)
    assert (group["weight_decay"], group["trust_ratio"]) == (0.5, ratio)  # the weight decay of its group


@pytest.mark.parametrize(("device", "fused"), [("cuda", True), ("cpu", None)])
def test_a_gpu_gets_the_fused_kernel(monkeypatch: pytest.MonkeyPatch, device: str, fused: bool | None) -> None:
    monkeypatch.setattr("deepspeed.accelerator.get_accelerator", lambda: SimpleNamespace(device_name=lambda: device))
    optimizer = optimizers.make_optimizer({"optimizer": {"type": "AdamW"}}, groups())
    assert optimizer is not None
    assert optimizer.defaults["fused"] == fused
    # The fused kernel reads the number of steps on the device of the weights.
    weight = optimizer.param_groups[0]["params"][0]
    engine_state._ensure_state(optimizer, weight)
    assert optimizer.state[weight]["step"].device.type == ("meta" if fused else "cpu")


@pytest.mark.parametrize("make", [torch.optim.AdamW, Lamb])
def test_the_updates_of_a_checkpoint_are_those_of_the_optimizer(make: type[torch.optim.Optimizer]) -> None:
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.ones(3)
    optimizer = make([weight], lr=0.1)  # type: ignore[call-arg]
    optimizer.step()
    engine_state._set_optimizer_steps(optimizer, 7)
    assert engine_state._optimizer_steps(optimizer) == 7
    assert torch.is_tensor(optimizer.state[weight]["step"]) == (make is torch.optim.AdamW)


@pytest.mark.slow
def test_adam_under_zero_is_adam_and_nothing_is_compiled(tmp_path: Path) -> None:
    found = processes.run(2, train_each, [0, 1, 2, 3], scratch=tmp_path)
    wanted = reference()
    for weights in found:
        assert weights.keys() == wanted.keys()
        for name, weight in weights.items():
            torch.testing.assert_close(weight, wanted[name], rtol=1e-4, atol=1e-6)
