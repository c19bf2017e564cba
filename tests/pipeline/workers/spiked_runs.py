"""Runs of pipeline.pretrain that meet a spike, and kills in the middle of a rollback."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np

from model.layers.heads import IGNORED_LABEL
from pipeline import replay
from pipeline.checkpoint import loader
from pipeline.data import mixture
from pipeline.engine import step as engine_step
from pipeline.pretraining import task
from pipeline.tracking import services
from pipeline.tracking.tracker import TrackedRun
from pipeline.training import rollback
from tests.pipeline.workers.runs import Ended, run_command, run_each

WRONG_LABEL = 7

Kill = Literal["before the record", "after the record"]


def train(commands: list[tuple[list[str], int | None]], spoilt: range, kill: Kill | None = None) -> list[Ended]:
    """Runs command lines as `run_each`. All predicted tokens of the batches `spoilt` have the same wrong label.

    When trackers are opened, a line says which steps are not sent to them again. With `kill`, the process kills itself
    in the first rollback.
    """
    with (
        _spoiling(spoilt),
        mock.patch.object(services, "open_all", _tell),
        contextlib.nullcontext() if kill is None else _killing(kill),
    ):
        return run_each(commands)


def train_and_list(
    starts: list[tuple[list[str], int | None]], others: list[list[str]], places: list[Path], spoilt: range
) -> list[Ended]:
    """As `train`, and then three other command lines, and replays of the first run and of the one without a record.

    Args:
        others: one resumes a run with the record of the first run; one goes on with a copy of the first run, whose
            record is lost; one has a high learning rate.
        places: the directories of the first run, and of the first two of `others`.
    """
    (listed, lost, high_rate), (first, of_listed, of_lost) = others, places
    ends = train(starts, spoilt)
    shutil.copyfile(first / rollback.ROLLBACKS, of_listed / rollback.ROLLBACKS)
    shutil.copytree(first, of_lost)
    for name in ("done", rollback.ROLLBACKS):
        (of_lost / name).unlink()
    ends += train([(listed, None), (lost, None)], spoilt)
    ends.append(train_with_a_high_rate(high_rate, range(spoilt.start, 10**6)))
    return ends + [run_command(replay.main, ["--run", str(run), "--step", "65"]) for run in (first, of_lost)]


def train_with_a_high_rate(command: list[str], steps: range) -> Ended:
    """Runs a command line. The learning rate is 1 in these steps, counted from 0."""
    set_learning_rate = engine_step.set_learning_rate

    def high(engine: Any, rate: float) -> None:
        set_learning_rate(engine, 1.0 if engine.global_steps in steps else rate)

    with mock.patch.object(engine_step, "set_learning_rate", high):
        return run_each([(command, None)])[0]


def _tell(track: object, deepspeed: object, run: TrackedRun) -> list[Any]:
    print(f"trackers have {sorted({step for step, _ in run.sent})}")
    return []


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


@contextlib.contextmanager
def _killing(kill: Kill) -> Iterator[None]:
    place, name = (rollback.atomic, "write_text") if kill == "before the record" else (loader, "load_latest")
    original = getattr(place, name)
    rolled_back = rollback.roll_back
    begun = []

    def begin(*arguments: Any) -> Any:
        begun.append(True)
        return rolled_back(*arguments)

    def killing(*arguments: Any) -> Any:
        if begun and (kill == "after the record" or arguments[0].name == rollback.ROLLBACKS):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    with mock.patch.object(place, name, killing), mock.patch.object(rollback, "roll_back", begin):
        yield
