"""Runs of pipeline.pretrain in which one bit flips on rank 1."""

import torch

from pipeline import pretrain
from pipeline.training.training_run import Callback, TrainingRun
from tests.pipeline.workers.added_callbacks import added_callback
from tests.pipeline.workers.runs import Ended, run_command


def run_flipped(commands: list[list[str]], step: int) -> list[Ended]:
    """Runs each command line. In each run a bit of the bf16 weights of rank 1 flips after the update of `step`."""
    with added_callback(lambda run: _Flipping(run, step)):
        return [run_command(pretrain.main, command) for command in commands]


class _Flipping(Callback):
    def __init__(self, run: TrainingRun, step: int) -> None:
        self._run, self._step = run, step

    def on_step(self, step: int) -> None:
        if self._run.control.rank == 1 and step == self._step:
            weights = next(iter(self._run.engine.module.parameters()))
            weights.detach().view(-1)[:1].view(torch.int16).__ixor__(1 << 5)
