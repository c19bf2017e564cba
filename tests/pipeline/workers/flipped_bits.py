"""Runs of pipeline.pretrain in which one bit flips, and replays of them, in the same processes."""

import signal
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor

from pipeline import pretrain, replay
from pipeline.checkpoint.saver import Saver
from pipeline.engine import state, zero_layout
from pipeline.engine import step as engine_step
from pipeline.training import trainer
from pipeline.training.callback import Callback, Phase
from pipeline.training.state import TrainingRun
from pipeline.training.trainer import Trainer
from tests.pipeline.workers.added_callbacks import added_callback
from tests.pipeline.workers.runs import Ended, run_command

TENSOR = "albert.embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class Flip:
    """A bit that flips on rank 1 in step `step`: in its batch, or after its update."""

    what: Literal["weights", "fp32 weights", "moments", "batch"]
    step: int


def flip(values: Tensor, bit: int) -> None:
    """Flips one bit of the first element."""
    words = values.detach().view(-1)[:1].view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()])
    words ^= 1 << bit


def run_flipped(
    cases: list[tuple[list[str], Flip | None, list[str] | None]], interrupted: list[str]
) -> list[tuple[Ended, Ended | None]]:
    """Runs each command line of pipeline.pretrain, then that of pipeline.replay, if there is one.

    Args:
        interrupted: one more command line of pipeline.replay. Ctrl-C reaches rank 1 in its first step.
    """
    ends = [(_run(command, flips), None if again is None else _replay(again)) for command, flips, again in cases]
    interruptions: list[int] = []

    def interrupt_once(trainer: Trainer) -> None:
        if trainer.run.control.rank == 1 and not interruptions:
            interruptions.append(trainer.run.state.step)
            signal.raise_signal(signal.SIGINT)
        engine_step.step(trainer.run.engine)

    with mock.patch.object(Trainer, "_step_engine", interrupt_once):
        return [*ends, (_replay(interrupted), None)]


def _replay(command: list[str]) -> Ended:
    """Runs a command line of pipeline.replay, which must not save."""
    with mock.patch.object(Saver, "start", side_effect=AssertionError("a replay saves nothing")):
        return run_command(replay.main, command)


class _Flipping(Callback):
    """Makes the flip on rank 1."""

    step_in_progress = 0

    def __init__(self, run: TrainingRun, flips: Flip) -> None:
        self._run, self._flips = run, flips

    def on_phase(self, phase: Phase, micro_step: int = 0) -> None:
        if phase == "forward":
            _Flipping.step_in_progress = self._run.state.step + 1 if self._run.control.rank == 1 else 0

    def on_step(self, seconds: float) -> None:
        if self._flips.step == self.step_in_progress and self._flips.what != "batch":
            _flip_in(self._run.engine, self._flips.what)


def _run(command: list[str], flips: Flip | None) -> Ended:
    if flips is None:
        return run_command(pretrain.main, command)
    to_device = trainer.to_device

    def flipping_copy(batch: Any, *more: Any) -> dict[str, Tensor]:
        tensors = to_device(batch, *more)
        if flips == Flip("batch", _Flipping.step_in_progress):
            flip(tensors["input_ids"][0, 5:], 3)
        return tensors

    with (
        added_callback(lambda run: _Flipping(run, flips)),
        mock.patch("pipeline.training.trainer.to_device", flipping_copy),
    ):
        return run_command(pretrain.main, command)


def _flip_in(engine: Any, what: str) -> None:
    """Flips a bit of this rank's part of a tensor."""
    for place, values in state.tensor_states(engine, zero_layout.slices(engine)):
        if place.length and place.name == TENSOR:
            if what == "weights":
                parameter = engine.module.get_parameter(place.name)
                flip(parameter if zero_layout.stage(engine) < 3 else parameter.ds_tensor, 5)
            else:
                flip(values["weight" if what == "fp32 weights" else "exp_avg"], 27)
            return
    raise AssertionError(f"rank 1 holds nothing of {TENSOR}")
