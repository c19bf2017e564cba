"""Runs several command lines of pipeline.pretrain in the same processes, which saves their start."""

import contextlib
import gc
import io
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch

from pipeline import pretrain
from pipeline.checkpoint.save_and_load import Saver
from pipeline.run import start
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import Callback, TrainingRun
from tests.model import flash_stand_in
from tests.pipeline.workers.training import claim_fp16


class Ended(NamedTuple):
    """A run's exit status and what rank 0 printed."""

    status: int
    stdout: str
    stderr: str


def run_each(commands: list[tuple[list[str], int | None]]) -> list[Ended]:
    """Runs each command line to its end. With a step, SIGUSR1 (Slurm's warning) arrives when that step is saved."""
    claim_fp16()
    return [_run(command, lambda step, stop=stop: _warn_after(step, stop)) for command, stop in commands]


def run_one(command: list[str]) -> Ended:
    """Runs one command line to its end."""
    return _run(command, lambda step: None)


def run_with_flash(commands: list[list[str]]) -> list[Ended]:
    """Runs each command line with FlashAttention's operator, which computes on this processor here."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        flash_stand_in.install(library)
        with mock.patch("model.albert.choose_kernel", return_value="flash"):
            return [run_one(command) for command in commands]


def run_by_a_counted_clock(commands: list[list[str]], tick: float) -> list[Ended]:
    """Runs each command line. The time of the training and its saves is `tick` seconds times the looks at it."""
    looks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: tick * next(looks), monotonic=time.monotonic)
    with contextlib.ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if name.startswith(("pipeline.training", "pipeline.checkpoint")) and hasattr(module, "time"):
                patches.enter_context(mock.patch.object(module, "time", clock))
        return [run_one(command) for command in commands]


def run_and_move(command: list[str], folder: Path, stop: int) -> list[Ended]:
    """Runs one command line to its end in `folder`/straight, and another run until the step `stop` is saved.

    That run is then moved to `folder`/moved and copied to `folder`/copied, and both go on there. A copy whose
    checkpoints are all damaged is started again, and a last run is removed before its first save.
    """
    names = ("straight", "first", "moved", "copied", "damaged", "removed")
    runs = {name: [*command, "--output", str(folder / name)] for name in names}
    ended = run_each([(runs["straight"], None), (runs["first"], stop)])
    subprocess.run(["mv", folder / "first", folder / "moved"], check=True)
    subprocess.run(["cp", "-a", folder / "moved", folder / "copied"], check=True)
    subprocess.run(["cp", "-a", folder / "moved", folder / "damaged"], check=True)
    for manifest in folder.glob("damaged/checkpoints/*/manifest.json"):
        manifest.write_text("{}", encoding="utf-8")
    os.link(folder / "damaged" / "settings.json", folder / "settings.before")
    ended += run_each([(runs[name], None) for name in ("moved", "copied", "damaged")])
    return [*ended, _run(runs["removed"], lambda step: shutil.rmtree(folder / "removed", ignore_errors=True))]


def run_on_a_disk_that_fills_up(command: list[str], place: Path, from_step: int, to_step: int) -> Ended:
    """Runs one command line whose output is in `place`. Between the saves of two steps nothing can be written there.

    The disk is a small file system that is filled. Without the right to mount one, it is a limit on the size of files.
    """
    with contextlib.ExitStack() as mounted:
        if os.geteuid() == 0:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True)

        def fill_and_free(step: int) -> None:
            if step == from_step:
                _fill(place)
            if step == to_step:
                _free(place)

        ended = _run(command, fill_and_free)
        (place.parent / "metrics.jsonl").write_bytes((place / "run" / "metrics.jsonl").read_bytes())
        return ended


def _fill(place: Path) -> None:
    if os.geteuid() == 0:
        with (place / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))


def _free(place: Path) -> None:
    if os.geteuid() == 0:
        (place / "filler").unlink()
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _warn_after(step: int, stop: int | None) -> None:
    if step == stop:
        os.kill(os.getpid(), signal.SIGUSR1)


def _run(command: list[str], before_save: Callable[[int], None]) -> Ended:
    with _watched_saves(before_save):
        return run_command(pretrain.main, command)


def run_command(main: Callable[[list[str]], int], command: list[str]) -> Ended:
    """Runs one command line of a module with this `main`."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            status = main(command)
        except SystemExit as error:
            status = int(error.code or 0)
    gc.collect()  # the engine and its buffers
    return Ended(status, stdout.getvalue(), stderr.getvalue())


@contextlib.contextmanager
def _watched_saves(before_save: Callable[[int], None]) -> Iterator[None]:
    """Calls `before_save(step)` before each save."""
    start = Saver.start

    def watched(saver: Saver, *arguments: Any, **settings: Any) -> None:
        before_save(saver._engine.global_steps)
        start(saver, *arguments, **settings)

    with mock.patch.object(Saver, "start", watched):
        yield


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
