"""Loads an engine on all ranks together: on any number of ranks, at any ZeRO stage, in any precision.

Each step below happens on every rank or on rank 0; then all ranks agree whether it succeeded everywhere.

    load    rank 0 lists the checkpoints -> each rank verifies its share of the newest one's files -> each rank reads
            the elements that it needs -> counters and loss scale are set; a damaged checkpoint is skipped

Whenever a process dies, the checkpoints that were complete before are still complete. A load is exact: on the same
number of ranks the run continues bit for bit as if it had not stopped. Random states are not stored: dropout follows
from (seed, step, rank), and the data from the samples consumed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from common.errors import UserError
from pipeline.checkpoint import files, retention
from pipeline.checkpoint.checkpoint_manifest import DamagedCheckpoint
from pipeline.checkpoint.files import VerifiedCheckpoint
from pipeline.distributed.control import all_or_raise, gather_all
from pipeline.engine import engine_state, zero_layout
from pipeline.engine.engine_state import Engine
from pipeline.engine.lamb import TensorSlice


def load_latest(engine: Engine, directory: Path) -> dict[str, Any] | None:
    """Sets the engine to the newest complete checkpoint. Collective; before the first step, or between two steps.

    It restores weights, m, v, counts of steps and samples, the fp16 loss scale, and each tensor's learning rate. The
    other settings are those of the engine. Rank 0 prints a line on stderr about each skipped checkpoint.

    Returns:
        The caller's state as given to `Saver.start`; None if there is no checkpoint.
    Raises:
        UserError: the checkpoint is of another model, or all checkpoints are damaged.
    """
    group = zero_layout.process_group(engine)
    names = _list_on_rank_0(group, directory)
    faults = []
    for name in names:
        try:
            checkpoint = _load_tensors(engine, directory / name)
        except DamagedCheckpoint as error:
            faults.append(f"{name} is damaged ({error})")
            continue
        for fault in faults if dist.get_rank(group) == 0 else ():
            print(f"checkpoint {fault}; continuing from {name}", file=sys.stderr, flush=True)
        return _restore(engine, checkpoint)
    if names:
        raise UserError(
            f"no checkpoint in {directory} is complete: {'; '.join(faults)}; "
            "restore one, or remove the directory to start from the beginning"
        )
    return None


def _restore(engine: Engine, checkpoint: VerifiedCheckpoint) -> dict[str, Any]:
    """Sets all of the engine but its tensors, and returns the caller's state. Collective."""
    groups = {tensor: stored.group for tensor, stored in checkpoint.manifest.tensors.items()}
    engine_state.restore(engine, checkpoint.state, groups)
    client_state: dict[str, Any] = checkpoint.state["client_state"]
    return client_state


def _load_tensors(engine: Engine, tag: Path) -> VerifiedCheckpoint:
    """Verifies the checkpoint `tag` and fills the engine's fp32 weights, m and v from it. Collective.

    Raises:
        DamagedCheckpoint: on all ranks together.
        UserError: the checkpoint is of another model.
    """
    group = zero_layout.process_group(engine)
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    slices = zero_layout.slices(engine)
    damage = (DamagedCheckpoint,), DamagedCheckpoint
    checkpoint = all_or_raise(group, lambda: files.verify_share(tag, rank, world_size), *damage)
    _check_model(checkpoint, slices)
    tensors = engine_state.tensor_states(engine, slices)
    all_or_raise(group, lambda: files.read_into(checkpoint, tensors), *damage)
    return checkpoint


def _list_on_rank_0(group: dist.ProcessGroup, directory: Path) -> list[str]:
    """The names of the checkpoints as rank 0 sees them, newest first, after cleaning up. Collective."""
    names: list[str] = []
    if dist.get_rank(group) == 0 and directory.is_dir():
        retention.clean_up_interrupted(directory)
        names = [tag.name for tag in retention.tags(directory)]
    return gather_all(group, names)[0]


def _check_model(checkpoint: VerifiedCheckpoint, slices: Sequence[TensorSlice]) -> None:
    """Raises UserError unless the checkpoint has the model's tensors, in their shapes."""
    here = {tensor.name: tensor.shape for tensor in slices}
    there = {name: tensor.shape for name, tensor in checkpoint.manifest.tensors.items()}
    for name in sorted(set(here) | set(there)):
        if here.get(name) != there.get(name):
            raise UserError(
                f"{checkpoint.tag} is of another model: {name} is {there.get(name, 'absent')} there and "
                f"{here.get(name, 'absent')} here; give the same --model, or another --output"
            )
