"""Saves the checkpoints of an engine while training goes on.

    start     all ranks agree and rank 0 makes a temporary directory; each rank copies the elements that it owns
              -> in a thread each rank writes, syncs and hashes its copy
    advance   the ranks exchange the records of their files -> in a thread rank 0 writes state and manifest, renames the
              directory, writes `latest` and deletes old checkpoints
    advance   all ranks learn whether that succeeded

The threads make no collectives: those are in `start`, `advance` and `finish`, which all ranks call together. So the
collectives of a save never meet those of training, and no further process group is needed. There is one save at a time.
"""

import contextlib
import json
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.checkpoint import files, retention
from pipeline.checkpoint.files import WrittenFile
from pipeline.checkpoint.manifest import STATE, CheckpointManifest, File, StoredTensor
from pipeline.distributed.control import all_or_raise, gather_all
from pipeline.engine import state as engine_state
from pipeline.engine import zero_layout
from pipeline.engine.lamb import TensorSlice
from pipeline.engine.optimizers import KINDS
from pipeline.engine.state import Engine, TensorState

T = TypeVar("T")


class SaveFailed(Exception):
    """A checkpoint could not be written on some rank; raised on all ranks. No part of it is left.

    Attributes:
        step: of the checkpoint.
    """

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


class Saved(NamedTuple):
    """A checkpoint that is complete.

    Attributes:
        step: of the checkpoint.
        seconds: that copying, writing and publishing took, without the steps of training in between.
        blocked_seconds: in which training stood on this rank.
    """

    step: int
    seconds: float
    blocked_seconds: float


class Saver:
    """Saves checkpoints of one engine, one at a time.

    Args:
        directory: on storage that all nodes share; each checkpoint becomes a directory inside.
        keep: how many of the newest checkpoints remain, at least 1. Those of later steps than a new one are deleted.
        in_background: False writes in the calls of `start` and `advance`, without threads and without a copy. So does a
            rank whose host has no memory for the copy.
        sync_records: called on rank 0 before a checkpoint is published; makes what was recorded before it durable. It
            may be called in a thread. If it raises OSError, the save fails.
    """

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        keep: int,
        in_background: bool = True,
        sync_records: Callable[[], None] = lambda: None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one checkpoint must remain")
        self._sync_records = sync_records
        self._engine, self._directory, self._keep = engine, directory, keep
        self.in_background = in_background
        self._copy = HostCopy()
        self._published: dict[Path, os.stat_result | None] = {}
        self._save: _Save | None = None

    @property
    def is_saving(self) -> bool:
        """Whether a save has begun and not ended. It is the same on all ranks."""
        return self._save is not None

    @property
    def is_busy(self) -> bool:
        """Whether this rank's thread is at work. `advance` does not wait if no rank's is."""
        return self._save is not None and self._save.work.is_running

    def prepare(self) -> "Work[Any]":
        """Allocates the memory of the copy in a thread, so that the first save need not. Not collective.

        Returns what a caller may wait for.
        """
        slices = zero_layout.owned_slices(self._engine)
        elements = len(KINDS) * sum(place.length for place in slices)
        return self._copy.allocate(elements, pinned=any(place.flat.is_cuda for place in slices))

    def start(
        self,
        client_state: dict[str, Any],
        score: float | None = None,
        undo_step: int | None = None,
        without_copy: bool = False,
    ) -> None:
        """Begins to save the engine's present step; no save may be in progress. Collective.

        Args:
            client_state: the caller's own JSON values; a load returns them.
            score: higher is better; the checkpoint with the best score remains as well.
            undo_step: the newest checkpoint of at most this step remains as well; None if none has to.
            without_copy: True writes at once, for a caller that waits anyway.
        Raises:
            SaveFailed: the directory cannot be made; on all ranks together.
        """
        if self._save is not None:
            raise RuntimeError(f"the save of step {self._save.step} is still in progress")
        began = time.perf_counter()
        engine = self._engine
        step, rank = engine.global_steps, dist.get_rank(zero_layout.process_group(engine))
        tag = self._directory / retention.tag_name(step)
        state = asdict(engine_state.engine_state(engine)) | {"versions": _versions(), "client_state": client_state}
        state_json = json.dumps(state, indent=1) + "\n"
        self._agree(Work(lambda: retention.make_temporary(tag) if rank == 0 else None, in_thread=False), step, tag)
        tensors = engine_state.tensor_states(engine, zero_layout.owned_slices(engine))
        copies = self._copy.copy(tensors) if self.in_background and not without_copy else None
        values, temporary = tensors if copies is None else copies, retention.temporary_of(tag)
        work = Work(lambda: files.write_rank_file(temporary, rank, values), in_thread=copies is not None)
        if score is not None and math.isnan(score):
            score = None
        blocked = time.perf_counter() - began
        seconds = blocked - work.seconds_at_once  # those of the work are added later
        self._save = _Save(step, tag, state_json, score, undo_step, work, False, seconds, blocked)

    def advance(self) -> Saved | None:
        """Ends the present stage of the save, for which it waits, and begins the next one. Collective.

        Returns:
            The checkpoint once it is complete; None before.
        Raises:
            SaveFailed: full disk, I/O error, directory not writable or not shared; on all ranks together.
        """
        save = self._save
        assert save is not None, "no save is in progress"
        began = time.perf_counter()
        save.work.wait()
        waited = time.perf_counter()
        try:
            results, seconds = self._agree(save.work, save.step, save.tag)
        except SaveFailed:
            self._save = None
            raise
        was_written, save.is_written = save.is_written, True
        if was_written:
            self._save = None
        else:
            save.work = self._publish(save, results)
            seconds -= save.work.seconds_at_once
        ended = time.perf_counter()
        save.seconds += seconds + ended - waited
        save.blocked += ended - began
        return Saved(save.step, save.seconds, save.blocked) if was_written else None

    def finish(self) -> Saved | None:
        """Waits for the end of the save. Collective.

        Returns:
            The checkpoint; None if no save was in progress.
        Raises:
            SaveFailed: as `advance`.
        """
        saved = None
        while self._save is not None:
            saved = self.advance()
        return saved

    def abandon(self) -> None:
        """Waits for this rank's thread and gives the save up, so that nothing is written later. Not collective."""
        if self._save is not None:
            self._save.work.wait()
            self._save = None

    def _publish(self, save: "_Save", written: Sequence[WrittenFile]) -> "Work[Any]":
        """Makes rank 0 publish the files that all ranks have written."""
        tensors = _stored_tensors(zero_layout.slices(self._engine), written)
        manifest = CheckpointManifest(save.step, save.score, {own.name: own.file for own in written}, tensors)
        temporary, is_rank_0 = retention.temporary_of(save.tag), self._rank == 0

        def publish() -> None:
            manifest.files[STATE] = files.write_state(temporary, save.state_json)
            self._sync_records()
            self._published[save.tag] = retention.publish(temporary, save.tag, manifest)
            # The new checkpoint is complete. If an old one cannot be deleted, the next save tries again.
            with contextlib.suppress(OSError):
                retention.prune(self._directory, self._keep, save.tag, save.undo_step, self._published)

        return Work(publish if is_rank_0 else lambda: None, self.in_background and is_rank_0)

    @property
    def _rank(self) -> int:
        return dist.get_rank(zero_layout.process_group(self._engine))

    def _agree(self, work: "Work[T]", step: int, tag: Path) -> tuple[list[T], float]:
        """The results of all ranks, by rank, and the seconds of the slowest. Collective.

        Raises SaveFailed on all ranks, after removing the files, if the work failed on one.
        """
        group = zero_layout.process_group(self._engine)

        def result() -> T:
            try:
                return work.result()
            except files.WRITE_ERRORS as error:
                raise SaveFailed(step, f"rank {self._rank}: {error}") from error

        try:
            own = all_or_raise(group, result, (SaveFailed,), lambda fault: SaveFailed(step, fault))
        except SaveFailed:
            if self._rank == 0:
                with contextlib.suppress(OSError):
                    retention.discard(retention.temporary_of(tag))
            raise
        results, seconds = zip(*gather_all(group, (own, work.seconds), (WrittenFile, File)))
        return list(results), max(seconds)


@dataclass
class _Save:
    """The save in progress.

    Attributes:
        work: of this rank in the present stage.
        is_written: True once the files of all ranks are written.
        seconds, blocked: so far, as in `Saved`.
    """

    step: int
    tag: Path
    state_json: str
    score: float | None
    undo_step: int | None
    work: "Work[Any]"
    is_written: bool
    seconds: float
    blocked: float


class Work(Generic[T]):
    """A function that runs in a thread, or at once.

    Attributes:
        seconds: that it took, once it has ended.
    """

    def __init__(self, function: Callable[[], T], in_thread: bool) -> None:
        self._function = function
        self._value: T | None = None
        self._error: BaseException | None = None
        self.seconds = 0.0
        # A daemon: a process whose disk does not answer must be able to end.
        self._thread = threading.Thread(target=self._run, name="save", daemon=True) if in_thread else None
        if self._thread is None:
            self._run()
        else:
            self._thread.start()

    def _run(self) -> None:
        began = time.perf_counter()
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error  # `result` raises it in the main thread
        self.seconds = time.perf_counter() - began

    @property
    def seconds_at_once(self) -> float:
        """`seconds` if it ran at once; 0 in a thread."""
        return self.seconds if self._thread is None else 0.0

    @property
    def is_running(self) -> bool:
        """Whether the function has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Waits for the end of the function."""
        if self._thread is not None:
            self._thread.join()

    def result(self) -> T:
        """What the function has returned, after its end. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class HostCopy:
    """A copy of this rank's tensors in the host's memory. The memory is allocated once; a GPU's copy is pinned."""

    def __init__(self) -> None:
        self._memory: Work[Tensor | None] | None = None

    def allocate(self, elements: int, pinned: bool) -> "Work[Tensor | None]":
        """Allocates the memory, fp32 (elements,), in a thread; None if the host refuses it."""

        def work() -> Tensor | None:
            try:
                return torch.empty(elements, pin_memory=pinned).zero_()  # the kernel gives a page when it is written
            except RuntimeError:
                return None

        self._memory = Work(work, in_thread=True)
        return self._memory

    @torch.no_grad()
    def copy(self, tensors: Sequence[TensorState]) -> list[TensorState] | None:
        """`tensors` with copies of their values, which the next call overwrites. Waits for the device.

        Returns None if the host refuses the memory.
        """
        values = [state.values[kind] for state in tensors for kind in KINDS]
        device = next((value.device for value in values if value.is_cuda), None)
        memory = self._memory or self.allocate(sum(value.numel() for value in values), pinned=device is not None)
        memory.wait()
        buffer = memory.result()
        if buffer is None:
            return None
        parts = iter(buffer.split([value.numel() for value in values]))
        copies = [TensorState(state.slice, {kind: next(parts) for kind in KINDS}) for state in tensors]
        for state, copy in zip(tensors, copies):
            for kind in KINDS:
                copy.values[kind].copy_(state.values[kind], non_blocking=True)
        if device is not None:
            torch.cuda.current_stream(device).synchronize()
        return copies


def _stored_tensors(slices: Sequence[TensorSlice], written: Sequence[WrittenFile]) -> dict[str, StoredTensor]:
    """The manifest's record of each tensor. Raises RuntimeError unless each element is in exactly one file."""
    tensors = {}
    for index, here in enumerate(slices):
        pieces = [(entry.name, *entry.pieces[index]) for entry in written if entry.pieces[index][1]]
        zero_layout.check_cover(here.name, math.prod(here.shape), [(start, length) for _, start, length in pieces])
        tensors[here.name] = StoredTensor(here.shape, here.group, tuple(pieces))
    return tensors


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "deepspeed": engine_state.deepspeed_version(),
    }
