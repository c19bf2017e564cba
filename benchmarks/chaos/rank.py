"""A rank of `pipeline.pretrain` that records each step with its time. The first word is the directory of the record.

python -m benchmarks.chaos.rank DIRECTORY ARGUMENTS-OF-PRETRAIN

Rank 0 writes a line for each step to DIRECTORY/steps.log: see `benchmarks.chaos.training.Made`.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import pretrain
from pipeline.distributed.exits import run_and_exit
from pipeline.run import start
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import Callback, TrainingRun

STEPS = "steps.log"
PAUSE_SECONDS = 0.2
"""After each step, so that the faults come before the last step on a fast machine as well."""


def record_steps(directory: Path) -> None:
    """Makes the trainer of this process record its steps in `directory`."""
    make_trainer = start.make_trainer

    def make_recording_trainer(run: TrainingRun, *arguments: Any) -> Trainer:
        trainer = make_trainer(run, *arguments)
        trainer.callbacks.insert(0, _Record(run, directory))
        return trainer

    start.make_trainer = make_recording_trainer  # type: ignore[assignment]


class _Record(Callback):
    """Records each step on rank 0."""

    def __init__(self, run: TrainingRun, directory: Path) -> None:
        self._run, self._directory, self._started = run, directory, time.time()

    def on_step(self, step: int) -> None:
        time.sleep(PAUSE_SECONDS)
        if self._run.is_rank_0:
            line = f"{time.time():.3f} {step} {self._run.control.world_size} {self._started:.3f}\n"
            with (self._directory / STEPS).open("ab", buffering=0) as log:
                log.write(line.encode())


def main(words: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    record_steps(Path(words[0]))
    return pretrain.main(words[1:])


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    run_and_exit(lambda: main(sys.argv[1:]))
