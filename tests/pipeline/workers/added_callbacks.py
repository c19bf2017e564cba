"""Adds callbacks of a test to every trainer of a block."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from pipeline.run import start
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import Callback, TrainingRun


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
