"""Of the errors of an engine's step, only that of the loss scale's floor is named."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.engine import engine_state


def test_only_the_loss_scale_s_floor_is_named() -> None:
    errors = iter([Exception("Current loss scale already at minimum"), ZeroDivisionError("row 7")])

    def fail() -> None:
        raise next(errors)

    engine: Any = SimpleNamespace(step=fail, fp16_enabled=lambda: True, optimizer=SimpleNamespace(cur_scale=4.0))
    with pytest.raises(engine_state.LossScaleAtFloor, match=r"^4$"):
        engine_state.step(engine)
    with pytest.raises(ZeroDivisionError):
        engine_state.step(engine)
