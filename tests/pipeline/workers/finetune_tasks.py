"""Runs several command lines of pipeline.finetune in one process. Argument: a JSON file, a list of `Start`s."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from pipeline import finetune
from pipeline.control import run_and_leave
from pipeline.runs import EXIT_STOPPED
from pipeline.trainer import Trainer


class Start(NamedTuple):
    """One start of a run.

    Attributes:
        arguments: of the command line.
        stop_at: Slurm's warning comes once this step is saved, or before the first step of a run that goes on from it.
        without: a file that is removed before.
    """

    arguments: list[str]
    stop_at: int | None = None
    without: str | None = None


def main() -> int:
    """Returns the first exit status that is not the one to be expected."""
    for start in (Start(*given) for given in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        if start.without is not None:
            Path(start.without).unlink()
        with _warned_at(start.stop_at):
            status = finetune.main(start.arguments)
        if status != (0 if start.stop_at is None else EXIT_STOPPED):
            return status or 1
    return 0


@contextlib.contextmanager
def _warned_at(step: int | None) -> Iterator[None]:
    evaluate, save = Trainer._try_evaluation, Trainer._save

    def warn(trainer: Trainer) -> None:
        if trainer.position.step == step:
            os.kill(os.getpid(), signal.SIGUSR1)

    def evaluated(trainer: Trainer) -> None:
        evaluate(trainer)
        warn(trainer)

    def saved(trainer: Trainer, must_succeed: bool) -> None:
        save(trainer, must_succeed)
        warn(trainer)

    with mock.patch.object(Trainer, "_try_evaluation", evaluated), mock.patch.object(Trainer, "_save", saved):
        yield


if __name__ == "__main__":
    run_and_leave(main)
