"""Saves the checkpoints of an engine while training goes on.

    start     all ranks agree and rank 0 makes a temporary directory; each rank copies the elements that it owns
              -> in a thread each rank writes, syncs and hashes its copy
    advance   the ranks exchange the records of their files -> in a thread rank 0 writes state and manifest, renames the
              directory, writes `latest` and deletes old checkpoints
    advance   all ranks learn whether that succeeded

The threads make no collectives: those are in `start`, `advance` and `finish`, which all ranks call together. So the
collectives of a save never meet those of training, and no further process group is needed. There is one save at a time.
"""

import concurrent.futures
import contextlib
import json
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.checkpoint import files, retention
from pipeline.checkpoint.files import WrittenFile
from pipeline.checkpoint.manifest import STATE, CheckpointManifest, StoredTensor
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
        self._sync_records = sync_records
        self._engine, self._directory, self._keep = engine, directory, keep
        self.in_background = in_background
        self._copy = HostCopy()
        self._published: dict[Path, os.stat_result | None] = {}
        self._stages: Generator[Future[Any], None, None] | None = None
        self._work: Future[Any] = Future()
        self._step, self._seconds, self._blocked = 0, 0.0, 0.0  # of the save in progress

    @property
    def is_saving(self) -> bool:
        """Whether a save has begun and not ended. It is the same on all ranks."""
        return self._stages is not None

    @property
    def is_busy(self) -> bool:
        """Whether this rank's thread is at work. `advance` does not wait if no rank's is."""
        return self._stages is not None and not self._work.done()

    def start(
        self,
        client_state: dict[str, Any],
        score: float | None = None,
        without_copy: bool = False,
    ) -> None:
        """Begins to save the engine's present step; no save may be in progress. Collective.

        Args:
            client_state: the caller's own JSON values; a load returns them.
            score: higher is better; the checkpoint with the best score remains as well.
            without_copy: True writes at once, for a caller that waits anyway.
        Raises:
            SaveFailed: the directory cannot be made; on all ranks together.
        """
        if self._stages is not None:
            raise RuntimeError(f"the save of step {self._step} is still in progress")
        self._step, self._seconds, self._blocked = self._engine.global_steps, 0.0, 0.0
        if score is not None and math.isnan(score):
            score = None
        self._stages = self._save(client_state, score, self.in_background and not without_copy)
        self.advance()

    def advance(self) -> Saved | None:
        """Ends the present stage of the save, for which it waits, and begins the next one. Collective.

        Returns:
            The checkpoint once it is complete; None before.
        Raises:
            SaveFailed: full disk, I/O error, directory not writable or not shared; on all ranks together.
        """
        assert self._stages is not None, "no save is in progress"
        stages, self._stages = self._stages, None
        began = time.perf_counter()
        work = next(stages, None)
        self._blocked += time.perf_counter() - began
        if work is None:
            return Saved(self._step, self._seconds, self._blocked)
        self._stages, self._work = stages, work
        return None

    def finish(self) -> Saved | None:
        """Waits for the end of the save. Collective.

        Returns:
            The checkpoint; None if no save was in progress.
        Raises:
            SaveFailed: as `advance`.
        """
        saved = None
        while self._stages is not None:
            saved = self.advance()
        return saved

    def abandon(self) -> None:
        """Waits for this rank's thread and gives the save up, so that nothing is written later. Not collective."""
        if self._stages is not None:
            concurrent.futures.wait([self._work])
            self._stages = None

    def _save(
        self, client_state: dict[str, Any], score: float | None, with_copy: bool
    ) -> Generator[Future[Any], None, None]:
        """Saves the present step. Yields what this rank's thread does, and is resumed when all ranks come together."""
        engine, step = self._engine, self._step
        rank = dist.get_rank(zero_layout.process_group(engine))
        tag = self._directory / retention.tag_name(step)
        temporary = retention.temporary_of(tag)
        state = engine_state.engine_state(engine) | {"versions": _versions(), "client_state": client_state}
        state_json = json.dumps(state, indent=1) + "\n"
        slices = zero_layout.slices(engine)
        try:
            self._agree(_run(lambda: retention.make_temporary(tag) if rank == 0 else None))
            tensors = engine_state.tensor_states(engine, zero_layout.owned_slices(engine))
            copying = _run(lambda: self._copy.copy(tensors) if with_copy else None)
            copies, seconds = copying.result()
            self._seconds += seconds
            values = tensors if copies is None else copies
            writing = _run(lambda: files.write_rank_file(temporary, rank, values), in_thread=copies is not None)
            yield writing
            written = self._agree(writing)
            tensors_at = _stored_tensors(slices, written)
            manifest = CheckpointManifest(step, score, {own.name: own.file for own in written}, tensors_at)

            def publish() -> None:
                if rank:
                    return
                manifest.files[STATE] = files.write_state(temporary, state_json)
                self._sync_records()
                self._published[tag] = retention.publish(temporary, tag, manifest)
                # The new checkpoint is complete. If an old one cannot be deleted, the next save tries again.
                with contextlib.suppress(OSError):
                    retention.prune(self._directory, self._keep, tag, self._published)

            publishing = _run(publish, in_thread=self.in_background and rank == 0)
            yield publishing
            self._agree(publishing)
        except SaveFailed:
            if rank == 0:
                with contextlib.suppress(OSError):
                    retention.discard(temporary)
            raise

    def _agree(self, work: Future[tuple[T, float]]) -> list[T]:
        """The results of all ranks, by rank, once all have them. Collective.

        Raises SaveFailed on all ranks if the work failed on one.
        """
        group, step = zero_layout.process_group(self._engine), self._step

        def result() -> tuple[T, float]:
            try:
                return work.result()
            except files.WRITE_ERRORS as error:
                raise SaveFailed(step, f"rank {dist.get_rank(group)}: {error}") from error

        own = all_or_raise(group, result, (SaveFailed,), lambda fault: SaveFailed(step, fault))
        results, seconds = zip(*gather_all(group, own))
        self._seconds += max(seconds)
        return list(results)


def _run(function: Callable[[], T], in_thread: bool = False) -> Future[tuple[T, float]]:
    """Runs `function` in a thread, or at once. The result is what it returned, and the seconds that it took."""
    future: Future[tuple[T, float]] = Future()

    def run() -> None:
        began = time.perf_counter()
        try:
            future.set_result((function(), time.perf_counter() - began))
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
        pieces = [(entry.name, *entry.pieces[index]) for entry in written if entry.pieces[index][1]]
        zero_layout.check_cover(here.name, math.prod(here.shape), [(start, length) for _, start, length in pieces])
        tensors[here.name] = StoredTensor(here.shape, here.group, tuple(pieces))
    return tensors


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "deepspeed": version("deepspeed"),
    }
