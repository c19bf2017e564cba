"""Saves the checkpoints of an engine while training goes on, and loads them. No other code does either.

    start     all ranks agree, and rank 0 makes a temporary directory; each rank copies the elements that it owns
              -> in a thread each rank writes, syncs and hashes its copy
    finish    the ranks exchange the records of their files; rank 0 writes state and manifest, renames the directory
              and deletes old checkpoints; all ranks learn whether that succeeded

    load      rank 0 lists the checkpoints -> each rank verifies its share of the newest one's files -> each rank reads
              the elements that it needs -> counters and loss scale are set; a damaged checkpoint is skipped

The threads make no collectives: those are in `start` and `finish`, which all ranks call together. They are those of
`ControlGroup`: a slow disk keeps no collective of the device waiting. There is one save at a time.

Whenever a process dies, the checkpoints that were complete before are still complete. A load works on any number of
ranks, at any ZeRO stage, in any precision. It is exact: on the same number of ranks the run continues bit for bit as if
it had not stopped. Random states are not stored: dropout follows from (seed, step, rank), and the data from the samples
consumed.
"""

import concurrent.futures
import contextlib
import json
import math
import platform
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from common.errors import UserError
from pipeline.checkpoint import files, retention
from pipeline.checkpoint.checkpoint_manifest import CheckpointManifest, DamagedCheckpoint, StoredTensor, check
from pipeline.checkpoint.files import WrittenFile
from pipeline.distributed.control import ControlGroup, attempt
from pipeline.engine import engine_state, zero_layout
from pipeline.engine.engine_state import Engine, TensorState
from pipeline.engine.lamb import TensorSlice
from pipeline.engine.optimizers import KINDS

T = TypeVar("T")


class SaveFailed(Exception):
    """A checkpoint could not be written on some rank; raised on all ranks. No part of it is left.

    step: of the checkpoint.
    """

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


class Saved(NamedTuple):
    """A complete checkpoint; the seconds that its making took, and those of them in which training stood."""

    step: int
    seconds: float
    blocked_seconds: float


class _Save(NamedTuple):
    """The save in progress: its checkpoint, what this rank writes, how rank 0 ends it, and how long training stood.

    `writing` gives the file, and the seconds that copying and writing took; `publish` gets these of all ranks.
    """

    tag: Path
    writing: "Future[tuple[WrittenFile, float]]"
    publish: Callable[[Sequence[tuple[WrittenFile, float]]], None]
    blocked: float


class Saver:
    """Saves checkpoints of one engine, one at a time.

    Args:
        directory: on storage that all nodes share; each checkpoint becomes a directory inside.
        keep: how many of the newest checkpoints remain, at least 1. Those of later steps than a new one are
            deleted.
        milestones: steps whose checkpoints are never deleted.
        scored_on: digest of the data of the scores, see `CheckpointManifest`.
    """

    def __init__(
        self,
        engine: Engine,
        control: ControlGroup,
        directory: Path,
        keep: int,
        milestones: Collection[int] = (),
        scored_on: str = "",
    ) -> None:
        self._engine, self._control, self._directory, self._keep = engine, control, directory, keep
        self._milestones, self._scored_on = milestones, scored_on
        self._copy = HostCopy()
        self._save: _Save | None = None

    @property
    def is_saving(self) -> bool:
        """Whether a save has begun and not ended. It is the same on all ranks."""
        return self._save is not None

    @property
    def is_writing(self) -> bool:
        """Whether this rank's thread is at work. `finish` does not wait if no rank's is."""
        return self._save is not None and not self._save.writing.done()

    def start(
        self, client_state: dict[str, Any], score: float | None = None, in_background: bool = True, checked: float = 0.0
    ) -> None:
        """Begins to save the engine's present step; no save may be in progress. Collective.

        Args:
            client_state: the caller's own JSON values; a load returns them.
            score: higher is better; the checkpoint with the best score remains as well.
            in_background: False writes at once and without a copy, for a caller that waits anyway. So does a rank whose
                host has no memory for the copy.
            checked: seconds for which training has stood for this save already.
        Raises:
            SaveFailed: the directory cannot be made; on all ranks together.
        """
        assert self._save is None, "a save is still in progress"
        began, engine = time.perf_counter(), self._engine
        tag = self._directory / retention.tag_name(engine.global_steps)
        temporary = retention.temporary_of(tag)
        versions = {"python": platform.python_version(), "torch": torch.__version__, "deepspeed": version("deepspeed")}
        state = engine_state.engine_state(engine) | {"versions": versions, "client_state": client_state}
        state_json = json.dumps(state, indent=1) + "\n"
        self._on_rank_0(tag, lambda: retention.make_temporary(tag))
        values = engine_state.tensor_states(engine, zero_layout.owned_slices(engine))
        copies = self._copy.copy(values) if in_background else None

        def write() -> tuple[WrittenFile, float]:
            own = values if copies is None else copies
            return files.write_rank_file(temporary, self._control.rank, own), time.perf_counter() - began

        def publish(written: Sequence[tuple[WrittenFile, float]]) -> None:
            step, own = retention.step_of(tag), [file for file, _ in written]
            tensors = _stored_tensors(zero_layout.slices(engine), own)
            entries = [*(file.file for file in own), files.write_state(temporary, state_json)]
            manifest = CheckpointManifest(
                step=step,
                score=None if score is None or math.isnan(score) else score,
                tensors=tensors,
                files=entries,
                milestone=step in self._milestones,
                scored_on=self._scored_on,
            )
            retention.publish(tag, manifest)
            with contextlib.suppress(OSError):  # the checkpoint is complete, and the next save tries again
                retention.prune(self._directory, self._keep, tag)

        writing = _run(write, in_thread=copies is not None)
        self._save = _Save(tag, writing, publish, checked + time.perf_counter() - began)

    def finish(self) -> Saved:
        """Waits until all ranks have written, and publishes the checkpoint. A save must be in progress. Collective.

        Raises SaveFailed: full disk, I/O error, directory not writable or not shared; on all ranks together.
        """
        assert self._save is not None, "no save is in progress"
        save, self._save = self._save, None
        tag, began = save.tag, time.perf_counter()
        found = self._control.gather(attempt(save.writing.result, files.WRITE_ERRORS))

        def publish() -> float:
            all_written = time.perf_counter()
            for rank, (_, problem) in enumerate(found or ()):
                if problem:
                    raise OSError(f"rank {rank}: {problem}")
            written = [result for result, _ in found or () if result is not None]
            save.publish(written)
            return max(seconds for _, seconds in written) + time.perf_counter() - all_written

        try:
            seconds = self._on_rank_0(tag, publish)
        except SaveFailed:
            if self._control.rank == 0:
                retention.discard(retention.temporary_of(tag))
            raise
        return Saved(retention.step_of(tag), seconds, save.blocked + time.perf_counter() - began)

    def abandon(self) -> None:
        """Waits for this rank's thread and gives the save up, so that nothing is written later. Not collective."""
        if self._save is not None:
            concurrent.futures.wait([self._save.writing])
            self._save = None

    def _on_rank_0(self, tag: Path, work: Callable[[], T]) -> T:
        step = retention.step_of(tag)
        return self._control.on_rank_0(work, files.WRITE_ERRORS, lambda fault: SaveFailed(step, fault))


def _run(function: Callable[[], T], in_thread: bool) -> "Future[T]":
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    if in_thread:
        # A daemon: a process whose disk does not answer must be able to end. A ThreadPoolExecutor would wait for it.
        threading.Thread(target=run, name="save", daemon=True).start()
    else:
        run()
    return future


class HostCopy:
    """A copy of this rank's tensors in the host's memory. The memory is allocated once; a GPU's copy is pinned."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None  # fp32 (elements,)

    @torch.no_grad()
    def copy(self, tensors: Sequence[TensorState]) -> list[TensorState] | None:
        """`tensors` with copies of their values, which the next call overwrites. Waits for the device.

        Returns None if the host refuses the memory.
        """
        values = [state.values[kind] for state in tensors for kind in KINDS]
        device = next((value.device for value in values if value.is_cuda), None)
        sizes = [value.numel() for value in values]
        if self._buffer is None:
            try:
                self._buffer = torch.empty(sum(sizes), pin_memory=device is not None)
            except RuntimeError:
                return None
        copies = self._buffer.split(sizes)
        for value, copy in zip(values, copies):
            copy.copy_(value, non_blocking=True)
        if device is not None:
            torch.cuda.current_stream(device).synchronize()
        parts = iter(copies)
        return [TensorState(state.slice, {kind: next(parts) for kind in KINDS}) for state in tensors]


def _stored_tensors(slices: Sequence[TensorSlice], written: Sequence[WrittenFile]) -> dict[str, StoredTensor]:
    """The manifest's record of each tensor. Raises RuntimeError unless each element is in exactly one file."""
    tensors = {}
    for index, here in enumerate(slices):
        pieces = [(entry.file.name, *entry.pieces[index]) for entry in written if entry.pieces[index][1]]
        zero_layout.check_cover(here.name, math.prod(here.shape), [(start, length) for _, start, length in pieces])
        tensors[here.name] = StoredTensor(here.shape, here.group, tuple(pieces))
    return tensors


def load_latest(
    engine: Engine, control: ControlGroup, directory: Path, step: int | None = None
) -> dict[str, Any] | None:
    """Sets the engine to the newest complete checkpoint. Collective; before the first step, or between two steps.

    It restores weights, m, v, counts of steps and samples, the fp16 loss scale, and each tensor's learning rate. The
    other settings are those of the engine. Rank 0 prints a line on stderr about each skipped checkpoint. step: of the
    only checkpoint that may be taken; None for any. Returns the caller's state as given to `Saver.start`; None if there
    is no checkpoint. Raises UserError: the checkpoint is of another model, or all checkpoints are damaged.
    """
    names = control.on_rank_0(lambda: _list(directory)) if step is None else [retention.tag_name(step)]
    faults = []
    for name in names:
        try:
            client_state = _load(engine, control, directory / name)
        except DamagedCheckpoint as error:
            faults.append(f"{name} is damaged ({error})")
            continue
        for fault in faults if control.rank == 0 else ():
            print(f"checkpoint {fault}; continuing from {name}", file=sys.stderr, flush=True)
        return client_state
    if names and step is not None:
        raise UserError(f"--branch: {directory / names[0]} cannot be loaded: {faults[0]}; name another checkpoint")
    if names:
        raise UserError(
            f"no checkpoint in {directory} is complete: {'; '.join(faults)}; "
            "restore one, or remove the directory to start from the beginning"
        )
    return None


def _load(engine: Engine, control: ControlGroup, tag: Path) -> dict[str, Any]:
    """Sets the engine to the checkpoint `tag`, after each rank has verified its share of the files. Collective.

    Raises DamagedCheckpoint on all ranks together, and UserError: the checkpoint is of another model.
    """
    slices, damage = zero_layout.slices(engine), ((DamagedCheckpoint,), DamagedCheckpoint)
    share = slice(control.rank, None, control.world_size)
    manifest, state = control.all_or_raise(lambda: (check(tag, share=share), files.read_state(tag)), *damage)
    here = {tensor.name: tensor.shape for tensor in slices}
    there = {name: tensor.shape for name, tensor in manifest.tensors.items()}
    for name in sorted(set(here) | set(there)):
        if here.get(name) != there.get(name):
            raise UserError(
                f"{tag} is of another model: {name} is {there.get(name, 'absent')} there and "
                f"{here.get(name, 'absent')} here; give the same --model, or another --output"
            )
    tensors = engine_state.tensor_states(engine, slices)
    control.all_or_raise(lambda: files.read_into(tag, manifest, tensors), *damage)
    engine_state.restore(engine, state, {name: tensor.group for name, tensor in manifest.tensors.items()})
    client_state: dict[str, Any] = state["client_state"]
    return client_state


def _list(directory: Path) -> list[str]:
    if not directory.is_dir():
        return []
    retention.clean_up_interrupted(directory)
    return [tag.name for tag in retention.tags(directory)]
