"""Runs several command lines of pipeline.finetune in the same processes. Argument: a JSON file, a list of `Start`s."""

import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch.distributed as dist
from deepspeed import DeepSpeedEngine

from pipeline import finetune
from pipeline.distributed.exits import EXIT_STOPPED, run_and_exit
from pipeline.finetuning.fine_tuning import FineTuning
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import TrainingRun
from tests.pipeline.workers.runs import run_command


class Start(NamedTuple):
    """One start of a run."""

    arguments: list[str]  # of the command line
    # SIGUSR1 (Slurm's warning) arrives when this step is saved, and before the first step of a run that resumes at it
    stop_at: int | None = None
    without: str | None = None  # a file that is removed before the start
    stop_in_results: bool = False  # SIGUSR1 arrives while the results of a seed are being written


def main() -> int:
    """Returns the first unexpected exit status, or 0."""
    for start in (Start(*given) for given in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        if start.without is not None:
            Path(start.without).unlink()
        with _warned_at(start.stop_at), _warned_in_results(start.stop_in_results):
            status = finetune.main(start.arguments)
        if status != (EXIT_STOPPED if start.stop_in_results or start.stop_at is not None else 0):
            return status or 1
        if status == 0 and any(isinstance(thing, DeepSpeedEngine) for thing in gc.get_objects()):
            raise AssertionError("the engine of a seed that is done keeps its memory")
    return 0


def finetune_each(commands: list[tuple[list[str], list[str]]]) -> list[list[tuple[int, str]]]:
    """Returns the exit status and stderr of each rank, for each command.

    commands: for each, the command line of all ranks but rank 1, and the command line of rank 1.
    """
    found = []
    for usual, of_rank_1 in commands:
        ended = run_command(finetune.main, of_rank_1 if dist.get_rank() == 1 else usual)
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, (ended.status, ended.stderr))
        found.append(gathered)
    return found


@contextlib.contextmanager
def _warned_at(step: int | None) -> Iterator[None]:
    try_evaluation, save = Trainer._try_evaluation, Trainer._save

    def warn(trainer: Trainer) -> None:
        if trainer.run.state.step == step:
            os.kill(os.getpid(), signal.SIGUSR1)

    def tried(trainer: Trainer) -> None:
        try_evaluation(trainer)
        warn(trainer)

    def saved(trainer: Trainer, required: bool) -> None:
        save(trainer, required)
        warn(trainer)

    with mock.patch.object(Trainer, "_try_evaluation", tried), mock.patch.object(Trainer, "_save", saved):
        yield


@contextlib.contextmanager
def _warned_in_results(warned: bool) -> Iterator[None]:
    conclude = FineTuning.conclude

    def concluded(task: FineTuning, run: TrainingRun) -> str:
        if warned:
            os.kill(os.getpid(), signal.SIGUSR1)
        return conclude(task, run)

    with mock.patch.object(FineTuning, "conclude", concluded):
        yield


if __name__ == "__main__":
    run_and_exit(main)
