"""What the trainer asks of an engine. tests/pipeline/training/test_loop.py has the overflow of DeepSpeed itself."""

from types import SimpleNamespace

import pytest
import torch

from pipeline.engine import engine_state


def engine_whose_step_raises(error: Exception) -> SimpleNamespace:
    def step() -> None:
        raise error

    return SimpleNamespace(step=step, fp16_enabled=lambda: True, optimizer=SimpleNamespace(cur_scale=4.0))


def test_only_the_loss_scale_s_floor_is_named() -> None:
    at_floor = Exception("Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.")
    with pytest.raises(engine_state.LossScaleAtFloor, match=r"^4$"):
        engine_state.step(engine_whose_step_raises(at_floor))
    with pytest.raises(ZeroDivisionError):
        engine_state.step(engine_whose_step_raises(ZeroDivisionError("row 7")))


def test_parameters_that_are_divided_among_ranks_count_whole() -> None:
    whole, divided = torch.nn.Parameter(torch.zeros(3, 4)), torch.nn.Parameter(torch.zeros(0))
    divided.ds_numel = 30  # type: ignore[attr-defined]
    engine = SimpleNamespace(module=SimpleNamespace(parameters=lambda: [whole, divided]))
    assert engine_state.parameter_count(engine) == 42


def test_other_optimizers_have_no_trust_ratios_and_a_norm_may_be_missing() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    engine = SimpleNamespace(
        basic_optimizer=torch.optim.AdamW([weight]),
        optimizer=SimpleNamespace(param_groups=[{"lr": 1.0}, {"lr": 2.0}]),
        get_global_grad_norm=lambda: None,
    )
    assert engine_state.trust_ratios(engine) is None
    assert engine_state.gradient_norm(engine) == 0.0
    engine_state.set_learning_rate(engine, 0.5)
    assert [group["lr"] for group in engine.optimizer.param_groups] == [0.5, 0.5]
