"""Saves and loads under DeepSpeed, in several processes."""

import contextlib
import errno
import io
import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from common.errors import UserError
from pipeline.checkpoint import files as checkpoint_files
from pipeline.checkpoint import retention
from pipeline.checkpoint.save_and_load import HostCopy, SaveFailed, Saver, load_latest
from pipeline.distributed.control import ControlGroup
from pipeline.engine import engine_state as engine_state
from pipeline.engine import zero_layout
from pipeline.engine.lamb import TensorSlice
from pipeline.engine.optimizers import KINDS
from tests.pipeline.checkpoint.test_files import flip
from tests.pipeline.workers import training
from tests.pipeline.workers.training import claim_fp16

SAVED_AT, END = 4, 7


@dataclass(frozen=True)
class Setup:
    """Stage, precision, and settings of the DeepSpeed JSON beside training.config's."""

    stage: int
    precision: str = "fp32"
    extra: tuple[tuple[str, Any], ...] = ()

    @property
    def folder(self) -> str:
        """A name that no other setup has: optimizers differ in their types."""
        values = [value.get("type", key) if isinstance(value, dict) else key for key, value in self.extra]
        return "-".join([str(self.stage), self.precision, *values])

    def engine(self, seed: int = 0) -> Any:
        world = torch.distributed.get_world_size()
        extra: dict[str, Any] = dict(self.extra)
        if self.precision == "fp16":
            claim_fp16()
            extra["fp16"] = {"loss_scale_window": 2, "initial_scale_power": 8}
        return training.make_engine(training.config(self.stage, self.precision, world, **extra), seed=seed)


def everything(engine: Any) -> dict[str, dict[str, Tensor]]:
    """Whole fp32 weights, m and v, by kind and name."""
    return {kind: training.full(engine, kind) for kind in KINDS}


def counters(engine: Any) -> tuple[Any, ...]:
    return (
        engine.global_steps,
        engine.global_samples,
        engine.micro_steps,
        engine.skipped_steps,
        engine_state.engine_state(engine)["optimizer_steps"],
        engine_state.engine_state(engine)["loss_scaler"],
        [group["lr"] for group in engine.basic_optimizer.param_groups],
    )


def stop_and_go_on(directory: Path, setups: list[Setup], last: int) -> tuple[list[tuple[Any, Any]], Any]:
    """For each setup (losses, state, counters) at the end: of an uninterrupted run, and of one that was saved,
    thrown away and loaded into a model that began elsewhere. Then the state of a run of `last` steps at stage 1."""
    outcomes = []
    for setup in setups:
        engine = setup.engine()
        training.train(engine, 0, SAVED_AT)
        save(engine, directory / setup.folder, {"note": "é", "samples": 48})
        losses = training.train(engine, SAVED_AT, END)
        straight = losses, everything(engine), counters(engine)
        training.close(engine)

        engine = setup.engine(seed=1)
        assert load_latest(engine, ControlGroup(), directory / setup.folder) == {"note": "é", "samples": 48}
        losses = training.train(engine, SAVED_AT, END)
        outcomes.append((straight, (losses, everything(engine), counters(engine))))
        training.close(engine)

    engine = Setup(1).engine()
    training.train(engine, 0, last)
    return outcomes, everything(engine)


def load_each(pairs: list[tuple[Path, Setup]]) -> list[Any]:
    """Loads the newest checkpoint of each directory into a fresh engine of the setup beside it."""
    found = []
    for directory, setup in pairs:
        engine = setup.engine(seed=1)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            assert load_latest(engine, ControlGroup(), directory) is not None
        at_load, counts = everything(engine), counters(engine)
        dtype = next(engine.module.parameters()).dtype
        model = training.model_weights(engine)
        follows = all(torch.equal(model[name], master.to(dtype).float()) for name, master in at_load["weight"].items())
        training.train(engine, SAVED_AT, END)
        made = {"at_load": at_load, "counters": counts, "at_end": everything(engine), "model_follows": follows}
        found.append(SimpleNamespace(**made, said=said.getvalue()))
        training.close(engine)
    return found


def save(engine: Any, directory: Path, state: dict[str, Any], score: float | None = None) -> None:
    """Saves in the foreground."""
    saver = Saver(engine, ControlGroup(), directory, 5)
    saver.start(state, score, in_background=False)
    saver.finish()


def failed(engine: Any, directory: Path) -> str:
    """The message of a save that must fail, after which all ranks have the same one."""
    try:
        save(engine, directory, {})
    except SaveFailed as error:
        messages: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(messages, str(error))
        assert len(set(messages)) == 1
        return str(error)
    raise AssertionError("the save did not fail")


def faults(directory: Path) -> dict[str, Any]:
    """Saves and loads that fail, on two ranks: the messages, and the files that are left."""
    rank = torch.distributed.get_rank()
    found: dict[str, Any] = {}

    def listing() -> list[str]:
        torch.distributed.barrier()
        return sorted(path.name for path in directory.iterdir())

    engine = Setup(1).engine()
    found["nothing there"] = load_latest(engine, ControlGroup(), directory / "none")
    training.train(engine, 0, 2)
    group = zero_layout.process_group(engine)
    before = group._get_sequence_number_for_group()
    save(engine, directory, {"number": 1}, score=0.5)
    found["collectives of the engine"] = group._get_sequence_number_for_group() - before

    # A thread writes after the next step; the save after it is given up.
    may_write, write = threading.Event(), checkpoint_files.write_rank_file

    def write_late(*arguments: Any) -> Any:
        assert may_write.wait(600)
        return write(*arguments)

    saver = Saver(engine, ControlGroup(), late := directory.with_name("late"), 5)
    with mock.patch.object(checkpoint_files, "write_rank_file", write_late):
        saver.start({}, checked=100.0)
        training.train(engine, 2, 3)
        may_write.set()
        found["stood for"] = saver.finish().blocked_seconds
        may_write.clear()
        saver.start({})
        threading.Timer(0.1, may_write.set).start()
        saver.abandon()
    found["given up"] = may_write.is_set(), saver.is_saving
    found["late"] = training.difference(checkpoint_files.load_weights(late), training.reference(2)["weight"])

    no_space = mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with mock.patch("pipeline.checkpoint.files.save_file", no_space if rank == 1 else checkpoint_files.save_file):
        found["rank 1 full"] = failed(engine, directory), listing()
    with mock.patch("pathlib.Path.is_dir", return_value=False) if rank == 1 else contextlib.nullcontext():
        found["not shared"] = failed(engine, directory), listing()

    # The failed saves have not changed the run.
    save(engine, directory, {"number": 2}, score=float("nan"))
    training.train(engine, 3, 4)
    save(engine, directory, {"number": 3})
    save(engine, directory, {"number": 4})  # the same step again

    def loaded(into: Any) -> tuple[Any, int, list[str]]:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                state: Any = load_latest(into, ControlGroup(), directory)
            except UserError as error:
                state = str(error)
        return state, into.global_steps, said.getvalue().splitlines()

    def damage(path: Path) -> None:
        torch.distributed.barrier()
        if rank == 0:
            flip(path, -1)
        torch.distributed.barrier()

    found["same step again"] = loaded(engine)
    damage(directory / "step-00000004" / "rank-00001.safetensors")
    found["bit flipped"] = loaded(engine)
    damage(directory / "step-00000003" / "manifest.json")
    found["manifest too"] = loaded(engine)
    found["weights"] = training.difference(training.full(engine), training.reference(2)["weight"])
    training.close(engine)

    slices = zero_layout.slices

    def renamed(engine: Any) -> list[TensorSlice]:
        first, *others = slices(engine)
        return [replace(first, name="another"), *others]

    other = Setup(1).engine()
    with mock.patch("pipeline.engine.zero_layout.slices", renamed):
        found["another model"] = loaded(other)
    damage(directory / "step-00000002" / "state.json")
    found["all damaged"] = loaded(other)
    training.close(other)
    return found


POINTS = ("the copy", "the end of a file", "the file of rank 1", "the manifest", "the retention")
"""Of a save, in their order. `save_after_each_step` is killed before one of them."""


def save_after_each_step(directory: Path, last: int, point: str = "") -> dict[str, dict[str, Tensor]]:
    """Continues from the newest checkpoint until the step `last`, and saves in the background after each step.

    With a point, one of the two ranks is killed there in its third save.
    """
    engine = Setup(1).engine()
    load_latest(engine, ControlGroup(), directory)
    saver = Saver(engine, ControlGroup(), directory, keep=2)
    with contextlib.ExitStack() as stack:
        if point:
            stack.enter_context(_killed(point, directory / f".step-{engine.global_steps + 3:08d}.tmp"))
        while engine.global_steps < last:
            training.train(engine, engine.global_steps, engine.global_steps + 1)
            if saver.is_saving:
                saver.finish()
            saver.start({})
        if saver.is_saving:
            saver.finish()
    return everything(engine)


def _killed(point: str, temporary: Path) -> Any:
    """Kills this process before `point` of the save into `temporary`, on the rank that comes there."""
    rank = torch.distributed.get_rank()
    module, name, victim = {
        "the copy": (HostCopy, "copy", 0),
        "the end of a file": (checkpoint_files, "sync", 0),
        "the file of rank 1": (checkpoint_files, "save_file", 1),
        "the manifest": (retention, "publish", 0),
        "the retention": (retention, "prune", 0),
    }[point]
    function = getattr(module, name)

    def killing(*arguments: Any) -> Any:
        published = temporary.with_name(temporary.name[1:-4])
        if rank == victim and (temporary.exists() or published.exists()):
            while point == "the file of rank 1" and not (temporary / "rank-00000.safetensors").exists():
                time.sleep(0.01)
            if point == "the end of a file":
                os.truncate(arguments[0], arguments[0].stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return mock.patch.object(module, name, killing)
