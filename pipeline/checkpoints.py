"""Saves a DeepSpeed run so that it goes on anywhere: on any number of ranks, any ZeRO stage, any precision.

Each rank writes the fp32 weights, m and v of the elements it owns, in the form that `pipeline.checkpoint_files`
describes. A save is all or nothing: every rank writes into a directory with a temporary name, syncs and hashes its
file; then rank 0 writes the manifest, renames the directory and, last, `latest`. Whenever a process dies, the
checkpoints that were whole before are still whole. A load reads only the elements that a rank needs, and is exact:
on the same number of ranks the run goes on bit for bit as if it had never stopped.

Random states are not stored: dropout follows from (seed, step, rank), and the data from the samples consumed.
"""

import contextlib
import json
import math
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file

from data_prep.atomic import fsync_file
from data_prep.errors import UserError
from pipeline import zero
from pipeline.checkpoint_files import (
    KINDS,
    LATEST,
    STATE,
    DamagedCheckpoint,
    File,
    Manifest,
    Reader,
    StoredTensor,
    check_file,
    find_latest,
    load_weights,
    piece_key,
    prune,
    publish,
    read_state,
    settle,
    tag_name,
    tags,
)

__all__ = ["SaveFailed", "find_latest", "load_latest", "load_weights", "read_state", "save"]


class SaveFailed(Exception):
    """A checkpoint could not be written, on whichever rank; raised on all of them. Nothing of it is left."""


def save(
    engine: Any,
    directory: Path,
    client_state: dict[str, Any],
    *,
    keep: int = 5,
    score: float | None = None,
) -> Path:
    """Writes the checkpoint of the engine's present step and removes the old ones. Collective.

    Args:
        directory: on storage that all nodes share; the checkpoint becomes a directory inside.
        client_state: the caller's own, of JSON values; `load_latest` gives it back.
        keep: how many of the newest remain, at least 1; none of later steps than this one does.
        score: higher is better; the checkpoint with the best one remains as well.
    Returns:
        The checkpoint's path.
    Raises:
        SaveFailed: full disk, I/O error, unwritable or unshared directory; on all ranks together.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least one checkpoint must remain")
    group = zero.process_group(engine)
    rank = dist.get_rank(group)
    tag = directory / tag_name(engine.global_steps)
    temporary = directory / f".{tag.name}.tmp"
    state = json.dumps(_state(engine, client_state), indent=1) + "\n"
    if score is not None and math.isnan(score):
        score = None
    try:
        _together(group, lambda: _make_directory(temporary) if rank == 0 else None)
        written = _together(group, lambda: _write_own(engine, temporary, rank))
        tensors = _tensors(zero.segments(engine), written)
        files = {name: file for name, file, _ in written}
        manifest = Manifest(engine.global_steps, score, files, tensors)
        _together(group, lambda: _complete(tag, temporary, state, manifest) if rank == 0 else None)
    except SaveFailed:
        if rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    if rank == 0:
        # The new checkpoint stands; if an old one cannot be removed, the next save tries again.
        with contextlib.suppress(OSError):
            prune(directory, keep, tag)
    return tag


def _together(group: dist.ProcessGroup, work: Callable[[], Any]) -> list[Any]:
    """Calls `work` on this rank and returns all ranks' results. Raises SaveFailed on all if it failed on one."""
    error = result = None
    try:
        result = work()
    except (OSError, SafetensorError) as fault:
        error = f"rank {dist.get_rank(group)}: {fault}"
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, (error, result), group=group)
    errors = [error for error, _ in gathered if error]
    if errors:
        others = f" (and {len(errors) - 1} more ranks)" if len(errors) > 1 else ""
        raise SaveFailed(errors[0] + others)
    return [result for _, result in gathered]


def _make_directory(temporary: Path) -> None:
    temporary.parent.mkdir(parents=True, exist_ok=True)
    settle(temporary.parent)
    temporary.mkdir()


def _write_own(engine: Any, temporary: Path, rank: int) -> tuple[str, File, list[tuple[int, int]]]:
    """Writes the elements that this rank owns; the file, its record, and each segment's (start, length)."""
    if not temporary.is_dir():
        raise OSError(f"{temporary} is not there, though rank 0 made it; the nodes must share the output directory")
    segments = zero.owned_segments(engine)
    zero.prepare_states(engine, segments)
    tensors = {}
    for segment in segments:
        if segment.length:
            for kind in KINDS:
                values = segment.master if kind == "weight" else segment.state(engine.basic_optimizer, kind)
                tensors[piece_key(kind, segment.name, segment.start)] = values
    name = f"rank-{rank:05d}.safetensors"
    save_file(tensors, temporary / name)
    fsync_file(temporary / name)
    return name, File.of(temporary / name), [(segment.start, segment.length) for segment in segments]


def _tensors(
    segments: list[zero.Segment], written: list[tuple[str, File, list[tuple[int, int]]]]
) -> dict[str, StoredTensor]:
    tensors = {}
    for index, segment in enumerate(segments):
        pieces = [(name, *places[index]) for name, _, places in written if places[index][1]]
        zero.check_cover(segment.name, math.prod(segment.shape), [piece[1:] for piece in pieces])
        tensors[segment.name] = StoredTensor(segment.shape, segment.group, tuple(pieces))
    return tensors


def _state(engine: Any, client_state: dict[str, Any]) -> dict[str, Any]:
    groups = engine.basic_optimizer.param_groups
    return {
        "step": engine.global_steps,
        "samples": engine.global_samples,
        "skipped_steps": engine.skipped_steps,
        "optimizer": type(engine.basic_optimizer).__name__,
        "optimizer_steps": zero.optimizer_steps(engine),
        "groups": [{key: value for key, value in group.items() if key != "params"} for group in groups],
        "loss_scaler": zero.loss_scaler_state(engine),
        "zero_stage": zero.stage(engine),
        "world_size": dist.get_world_size(zero.process_group(engine)),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "deepspeed": deepspeed.__version__,
        },
        "client_state": client_state,
    }


def _complete(tag: Path, temporary: Path, state: str, manifest: Manifest) -> None:
    """Rank 0's part, once the files of all ranks are on disk."""
    (temporary / STATE).write_text(state, encoding="utf-8")
    fsync_file(temporary / STATE)
    manifest.files[STATE] = File.of(temporary / STATE)
    publish(temporary, tag, manifest)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def load_latest(engine: Any, directory: Path, say: Callable[[str], None] = _print) -> dict[str, Any] | None:
    """Brings the engine to the newest whole checkpoint. Collective; after `zero.attach`, before the first step.

    Restored: weights, m, v, counts of steps and samples, the fp16 loss scale, each tensor's learning rate. The
    other settings are those of the engine; where a saved one differs, `say` tells.

    Args:
        say: called on rank 0 with a line about a checkpoint that was passed over, or a changed setting.
    Returns:
        The caller's state as given to `save`, or None where there is no checkpoint.
    Raises:
        UserError: of another model, or there are checkpoints and all are damaged.
    """
    group = zero.process_group(engine)
    rank = dist.get_rank(group)
    tell = say if rank == 0 else lambda line: None
    if rank == 0 and directory.is_dir():
        settle(directory)
    found = [[tag.name for tag in tags(directory)] if rank == 0 else None]
    dist.broadcast_object_list(found, group=group, group_src=0)
    names: list[str] = found[0] or []
    faults = []
    for name in names:
        try:
            manifest, state = _check_together(group, directory / name)
            _check_model(directory / name, zero.segments(engine), manifest)
            _load_together(group, engine, directory / name, manifest)
        except DamagedCheckpoint as error:
            faults.append(f"{name} is damaged ({error})")
            continue
        for fault in faults:
            tell(f"checkpoint {fault}; going on from {name}")
        if not faults:
            _tell_lost(directory, name, tell)
        zero.refresh_model_weights(engine)
        _restore(engine, state, manifest, tell)
        client_state: dict[str, Any] = state["client_state"]
        return client_state
    if names:
        raise UserError(
            f"no checkpoint in {directory} is whole: {'; '.join(faults)}; "
            "restore one, or remove the directory to begin anew"
        )
    return None


def _tell_lost(directory: Path, name: str, tell: Callable[[str], None]) -> None:
    with contextlib.suppress(OSError):
        latest = (directory / LATEST).read_text(encoding="utf-8").strip()
        if latest > name:
            tell(f"checkpoint {latest} is gone; going on from {name}")


def _faults_together(group: dist.ProcessGroup, work: Callable[[], Any]) -> Any:
    """Calls `work` on this rank. Raises DamagedCheckpoint on all ranks if it did on one."""
    fault = result = None
    try:
        result = work()
    except DamagedCheckpoint as error:
        fault = str(error)
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, fault, group=group)
    faults = [fault for fault in gathered if fault]
    if faults:
        raise DamagedCheckpoint(faults[0])
    return result


def _check_together(group: dist.ProcessGroup, tag: Path) -> tuple[Manifest, dict[str, Any]]:
    """The manifest and the state, after checking all files, divided among the ranks."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)

    def work() -> tuple[Manifest, dict[str, Any]]:
        manifest = Manifest.read(tag)
        for name in sorted(manifest.files)[rank::world]:
            check_file(tag, name, manifest.files[name], content=True)
        check_file(tag, STATE, manifest.files[STATE], content=True)
        return manifest, read_state(tag)

    result: tuple[Manifest, dict[str, Any]] = _faults_together(group, work)
    return result


def _check_model(tag: Path, segments: list[zero.Segment], manifest: Manifest) -> None:
    """Raises UserError unless the checkpoint has the model's tensors, in their shapes."""
    here = {segment.name: segment.shape for segment in segments}
    there = {name: tensor.shape for name, tensor in manifest.tensors.items()}
    for name in sorted(set(here) | set(there)):
        if here.get(name) != there.get(name):
            raise UserError(
                f"{tag} is of another model: {name} is {there.get(name, 'absent')} there and "
                f"{here.get(name, 'absent')} here; give the same --model, or another --output"
            )


def _load_together(group: dist.ProcessGroup, engine: Any, tag: Path, manifest: Manifest) -> None:
    segments = zero.segments(engine)
    zero.prepare_states(engine, segments)

    def work() -> None:
        with Reader(tag, manifest) as reader:
            for segment in segments:
                for kind in KINDS:
                    target = segment.master if kind == "weight" else segment.state(engine.basic_optimizer, kind)
                    for offset, part in reader.read(segment.name, kind, segment.start, segment.length):
                        target.narrow(0, offset, part.numel()).copy_(part)

    _faults_together(group, work)


def _restore(engine: Any, state: dict[str, Any], manifest: Manifest, tell: Callable[[str], None]) -> None:
    engine.global_steps = state["step"]
    engine.global_samples = state["samples"]
    engine.skipped_steps = state["skipped_steps"]
    engine.micro_steps = state["step"] * engine.gradient_accumulation_steps()
    zero.set_optimizer_steps(engine, state["optimizer_steps"])
    zero.set_loss_scaler_state(engine, state["loss_scaler"])
    kind = type(engine.basic_optimizer).__name__
    if kind != state["optimizer"]:
        tell(f"the optimizer was {state['optimizer']} and is {kind} from here on")
    changed = set()
    for segment in zero.segments(engine):
        now = engine.basic_optimizer.param_groups[segment.group]
        before = state["groups"][manifest.tensors[segment.name].group]
        now["lr"] = before["lr"]
        for key in ("weight_decay", "betas", "eps", "trust_ratio"):
            if key in before and key in now and _plain(before[key]) != _plain(now[key]):
                changed.add(f"{key} was {before[key]} and is {now[key]} from here on")
    for line in sorted(changed):
        tell(line)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
