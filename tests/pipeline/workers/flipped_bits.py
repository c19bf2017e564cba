"""Runs of pipeline.pretrain in which one bit flips on rank 1."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from pipeline import pretrain
from pipeline.engine import state, zero_layout
from pipeline.training.callback import Callback
from pipeline.training.state import TrainingRun
from tests.pipeline.workers.added_callbacks import added_callback
from tests.pipeline.workers.runs import Ended, run_command


@dataclass(frozen=True)
class Flip:
    """A bit that flips on rank 1 after the update of step `step`."""

    what: Literal["weights", "fp32 weights", "moments"]
    step: int


def run_flipped(cases: list[tuple[list[str], Flip]]) -> list[Ended]:
    """Runs each command line of pipeline.pretrain."""
    ends = []
    for command, flips in cases:
        with added_callback(lambda run, flips=flips: _Flipping(run, flips)):
            ends.append(run_command(pretrain.main, command))
    return ends


class _Flipping(Callback):
    """Makes the flip on rank 1."""

    def __init__(self, run: TrainingRun, flips: Flip) -> None:
        self._run, self._flips = run, flips

    def on_step(self, seconds: float) -> None:
        if self._run.control.rank == 1 and self._run.state.step == self._flips.step:
            _flip_in(self._run.engine, self._flips.what)


def _flip(values: Tensor, bit: int) -> None:
    """Flips one bit of the first element."""
    words = values.detach().view(-1)[:1].view({2: torch.int16, 4: torch.int32}[values.element_size()])
    words ^= 1 << bit


def _flip_in(engine: Any, what: str) -> None:
    """Flips a bit of the first tensor of which this rank holds a part."""
    for place, values in state.tensor_states(engine, zero_layout.slices(engine)):
        if place.length:
            if what == "weights":
                parameter = engine.module.get_parameter(place.name)
                _flip(parameter if zero_layout.stage(engine) < 3 else parameter.ds_tensor, 5)
            else:
                _flip(values["weight" if what == "fp32 weights" else "exp_avg"], 27)
            return
    raise AssertionError("rank 1 holds nothing")
