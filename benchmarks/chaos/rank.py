"""A rank of `pipeline.pretrain` to which faults can be done from outside. The first word is a directory of requests.

python -m benchmarks.chaos.rank DIRECTORY ARGUMENTS-OF-PRETRAIN

DIRECTORY/spoilt.json   [[first, end], ...]: batches whose predicted tokens all have the same wrong label
DIRECTORY/flip-HOST     a number: this bit of a weight of the rank on HOST flips after the next update that is saved
DIRECTORY/steps.log     rank 0 writes a line for each step: see `benchmarks.chaos.training.Made`
"""

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.layers.heads import IGNORED_LABEL
from pipeline import pretrain
from pipeline.data import mixture
from pipeline.distributed.exits import run_and_exit
from pipeline.pretraining import task
from pipeline.run import lifecycle
from pipeline.training.callback import Callback
from pipeline.training.state import TrainingRun
from pipeline.training.trainer import Trainer

SPOILT, STEPS = "spoilt.json", "steps.log"
WRONG_LABEL = 7
TENSOR = "albert.embeddings.word_embeddings.weight"


def flip_of(directory: Path, host: str) -> Path:
    """The file that asks for a flipped bit on a host."""
    return directory / f"flip-{host}"


def accept_faults(directory: Path) -> None:
    """Makes the trainer of this process do what the files of `directory` ask for."""
    training_step, make_trainer = mixture.training_step, lifecycle.make_trainer

    def spoiling(data: Any, batch: int, *arguments: Any) -> list[Any]:
        made = training_step(data, batch, *arguments)
        if not any(first <= batch < end for first, end in _spoilt(directory)):
            return made
        wrong = [np.where(one.masked_labels == IGNORED_LABEL, IGNORED_LABEL, WRONG_LABEL) for one in made]
        return [one._replace(masked_labels=labels.astype(np.int64)) for one, labels in zip(made, wrong)]

    def make_faulty_trainer(run: TrainingRun, *arguments: Any) -> Trainer:
        trainer = make_trainer(run, *arguments)
        trainer.callbacks.insert(0, _Faults(run, directory))
        return trainer

    task.training_step = spoiling  # type: ignore[assignment]
    lifecycle.make_trainer = make_faulty_trainer  # type: ignore[assignment]


class _Faults(Callback):
    """Flips a bit of the weights where a file asks for it, and records each step on rank 0."""

    def __init__(self, run: TrainingRun, directory: Path) -> None:
        self._run, self._directory, self._started = run, directory, time.time()

    def on_step(self, seconds: float) -> None:
        run, request = self._run, flip_of(self._directory, socket.gethostname())
        if request.exists() and run.state.step % run.settings.save_interval == 0:
            bit = int(request.read_text(encoding="utf-8"))
            request.unlink()
            values = run.engine.module.get_parameter(TENSOR).detach()
            values.view(-1)[:1].view(torch.int32).__ixor__(1 << bit)
        if run.is_rank_0:
            line = f"{time.time():.3f} {run.state.step} {run.control.world_size} {self._started:.3f}\n"
            with (self._directory / STEPS).open("ab", buffering=0) as log:
                log.write(line.encode())


def _spoilt(directory: Path) -> list[list[int]]:
    path = directory / SPOILT
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def main(words: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    accept_faults(Path(words[0]))
    return pretrain.main(words[1:])


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    run_and_exit(lambda: main(sys.argv[1:]))
