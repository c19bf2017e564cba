"""A rank of `pipeline.pretrain` to which faults can be done from outside. The first word is a directory of requests.

python -m benchmarks.chaos.rank DIRECTORY ARGUMENTS-OF-PRETRAIN

DIRECTORY/spoilt.json   [[first, end], ...]: batches whose predicted tokens all have the same wrong label
DIRECTORY/flip-HOST     a number: this bit of a weight of the rank on HOST flips after its next update
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
from pipeline.training.trainer import Trainer

SPOILT, STEPS = "spoilt.json", "steps.log"
WRONG_LABEL = 7
TENSOR = "albert.embeddings.word_embeddings.weight"


def flip_of(directory: Path, host: str) -> Path:
    """The file that asks for a flipped bit on a host."""
    return directory / f"flip-{host}"


def accept_faults(directory: Path) -> None:
    """Makes the trainer of this process do what the files of `directory` ask for."""
    training_step, step, started = mixture.training_step, Trainer._step, time.time()

    def spoiling(data: Any, batch: int, *arguments: Any) -> list[Any]:
        made = training_step(data, batch, *arguments)
        if not any(first <= batch < end for first, end in _spoilt(directory)):
            return made
        wrong = [np.where(one.masked_labels == IGNORED_LABEL, IGNORED_LABEL, WRONG_LABEL) for one in made]
        return [one._replace(masked_labels=labels.astype(np.int64)) for one, labels in zip(made, wrong)]

    def recording(self: Trainer, *arguments: Any) -> Any:
        upcoming = step(self, *arguments)
        request = flip_of(directory, socket.gethostname())
        if request.exists():
            bit = int(request.read_text(encoding="utf-8"))
            request.unlink()
            values = self.engine.module.get_parameter(TENSOR).detach()
            values.view(-1)[:1].view(torch.int32).__ixor__(1 << bit)
        if self.control.rank == 0:
            with (directory / STEPS).open("ab", buffering=0) as log:
                log.write(f"{time.time():.3f} {self.state.step + 1} {self.control.world_size} {started:.3f}\n".encode())
        return upcoming

    task.training_step = spoiling  # type: ignore[assignment]
    Trainer._step = recording  # type: ignore[assignment,method-assign]


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
