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
