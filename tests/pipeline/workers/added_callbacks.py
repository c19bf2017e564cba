"""Adds callbacks of a test to every trainer of a block."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from pipeline.run import start
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import Callback, TrainingRun
from tests.pipeline.workers.runs import run_one


@contextlib.contextmanager
def added_callback(make: Callable[[TrainingRun], Callback]) -> Iterator[None]:
    """Each trainer that a run makes in the block has the callback `make(run)` as well."""
    make_trainer = start.make_trainer

    def make_longer(run: TrainingRun, *arguments: Any) -> Trainer:
        trainer = make_trainer(run, *arguments)
        trainer.callbacks.insert(0, make(run))
        return trainer

    with mock.patch.object(start, "make_trainer", make_longer):
        yield


def run_watched(command: list[str], watcher: Any) -> None:
    """Runs a command line of pipeline.pretrain with the callback `watcher`, whose `enter` is told each phase, too."""
    enter = TrainingRun.enter

    def enter_and_tell(run: TrainingRun, *phase: Any) -> None:
        enter(run, *phase)
        watcher.enter(run, *phase)

    with added_callback(lambda run: watcher), mock.patch.object(TrainingRun, "enter", enter_and_tell):
        ended = run_one(command)
    assert ended.status == 0, ended.stderr
