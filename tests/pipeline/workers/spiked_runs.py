"""Runs of pipeline.pretrain that meet a spike, and a kill in the middle of a rollback."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from model.layers.heads import IGNORED_LABEL
from pipeline.data import mixture
from pipeline.pretraining import task
from pipeline.training import rollback, spikes
from tests.pipeline.workers.runs import Ended, run_each

WRONG_LABEL = 7
MIN_STEPS = 24
"""Usual steps that the detector needs here, so that the runs are short."""


def train(commands: list[tuple[list[str], int | None]], spoilt: range, killed: bool = False) -> list[Ended]:
    """Runs command lines as `run_each`. All predicted tokens of the batches `spoilt` have the same wrong label.

    With `killed`, the process kills itself in the first rollback, before the record is written.
    """
    with (
        mock.patch.object(spikes, "MIN_STEPS", MIN_STEPS),
        _spoiling(spoilt),
        mock.patch.object(rollback.atomic, "write_text", _kill_at_record) if killed else contextlib.nullcontext(),
    ):
        return run_each(commands)


def train_and_list(
    starts: list[tuple[list[str], int | None]], listed: list[str], places: tuple[Path, Path], spoilt: range
) -> list[Ended]:
    """As `train`, and then one more command line, which resumes a run with the record of the first run.

    Args:
        places: the directories of the first run and of the one that is resumed.
    """
    ends = train(starts, spoilt)
    shutil.copyfile(*(place / rollback.ROLLBACKS for place in places))
    return ends + train([(listed, None)], spoilt)


@contextlib.contextmanager
def _spoiling(spoilt: range) -> Iterator[None]:
    def spoil(data: Any, batch: int, *arguments: int) -> list[Any]:
        made = mixture.training_step(data, batch, *arguments)
        if batch not in spoilt:
            return made
        wrong = [np.where(one.masked_labels == IGNORED_LABEL, IGNORED_LABEL, WRONG_LABEL) for one in made]
        return [one._replace(masked_labels=labels.astype(np.int64)) for one, labels in zip(made, wrong)]

    with mock.patch.object(task, "training_step", spoil):
        yield


_write_text = rollback.atomic.write_text


def _kill_at_record(path: Path, *arguments: Any) -> None:
    if path.name == rollback.ROLLBACKS:
        os.kill(os.getpid(), signal.SIGKILL)
    _write_text(path, *arguments)
