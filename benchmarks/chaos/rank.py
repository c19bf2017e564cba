"""A rank of `pipeline.pretrain` to which faults can be done from outside. The first word is a directory of requests.

python -m benchmarks.chaos.rank DIRECTORY ARGUMENTS-OF-PRETRAIN

DIRECTORY/flip-HOST     a number: this bit of a weight of the rank on HOST flips after the next update that is saved
DIRECTORY/steps.log     rank 0 writes a line for each step: see `benchmarks.chaos.training.Made`
"""

import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline import pretrain
from pipeline.distributed.exits import run_and_exit
from pipeline.run import start
from pipeline.training.callback import Callback
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import TrainingRun

STEPS = "steps.log"
TENSOR = "albert.embeddings.word_embeddings.weight"


def flip_of(directory: Path, host: str) -> Path:
    """The file that asks for a flipped bit on a host."""
    return directory / f"flip-{host}"


def accept_faults(directory: Path) -> None:
    """Makes the trainer of this process do what the files of `directory` ask for."""
    make_trainer = start.make_trainer

    def make_faulty_trainer(run: TrainingRun, *arguments: Any) -> Trainer:
        trainer = make_trainer(run, *arguments)
        trainer.callbacks.insert(0, _Faults(run, directory))
        return trainer

    start.make_trainer = make_faulty_trainer  # type: ignore[assignment]


class _Faults(Callback):
    """Flips a bit of the weights where a file asks for it, and records each step on rank 0."""

    def __init__(self, run: TrainingRun, directory: Path) -> None:
        self._run, self._directory, self._started = run, directory, time.time()

    def on_step(self, step: int) -> None:
        run, request = self._run, flip_of(self._directory, socket.gethostname())
        if request.exists() and step % run.settings.save_interval == 0:
            bit = int(request.read_text(encoding="utf-8"))
            request.unlink()
            values = run.engine.module.get_parameter(TENSOR).detach()
            values.view(-1)[:1].view(torch.int32).__ixor__(1 << bit)
        if run.is_rank_0:
            line = f"{time.time():.3f} {step} {run.control.world_size} {self._started:.3f}\n"
            with (self._directory / STEPS).open("ab", buffering=0) as log:
                log.write(line.encode())


def main(words: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    accept_faults(Path(words[0]))
    return pretrain.main(words[1:])


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    run_and_exit(lambda: main(sys.argv[1:]))
