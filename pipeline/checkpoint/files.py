"""Writes, verifies and reads one rank's part of a checkpoint. Needs no other rank: no collectives.

`pipeline.checkpoint.checkpoint_manifest` describes the files.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from common.errors import UserError
from common.files.atomic import set_default_mode, sync
from common.files.checksums import FileEntry, describe_file
from pipeline.checkpoint.checkpoint_manifest import (
    MANIFEST,
    STATE,
    CheckpointManifest,
    DamagedCheckpoint,
    as_damage,
    check,
    check_file,
    read_content,
)
from pipeline.checkpoint.retention import find_latest
from pipeline.engine.optimizers import KINDS

if TYPE_CHECKING:
    from pipeline.engine.engine_state import TensorState

WRITE_ERRORS = (OSError, SafetensorError)
"""What `write_rank_file` and `write_state` raise for a full disk, an I/O error or a missing directory."""


class WrittenFile(NamedTuple):
    """One rank's file, and (start, length) of its elements of each tensor, in their order; length 0 for none."""

    file: FileEntry
    pieces: list[tuple[int, int]]


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A checkpoint after this rank has checked its share of the files: directory, manifest, content of state.json."""

    tag: Path
    manifest: CheckpointManifest
    state: dict[str, Any]


def write_rank_file(directory: Path, rank: int, tensors: "Sequence[TensorState]") -> WrittenFile:
    """Writes and syncs the elements of `tensors`, which are those that this rank owns."""
    if not directory.is_dir():
        raise OSError(f"{directory} is not there, though rank 0 made it; the nodes must share the output directory")
    path = directory / f"rank-{rank:05d}.safetensors"
    content = {
        piece_key(kind, part.name, part.start): values[kind]
        for part, values in tensors
        if part.length
        for kind in KINDS
    }
    save_file(content, path)
    set_default_mode(path)
    sync(path)
    return WrittenFile(describe_file(path), [(part.start, part.length) for part, _ in tensors])


def write_state(directory: Path, text: str) -> FileEntry:
    """Writes and syncs state.json with this content and returns its record."""
    path = directory / STATE
    path.write_text(text, encoding="utf-8")
    sync(path)
    return describe_file(path)


def read_state(tag: Path) -> dict[str, Any]:
    """The content of a checkpoint's state.json. Raises DamagedCheckpoint."""
    with as_damage():
        return read_content(tag / STATE)


def verify_share(tag: Path, rank: int, world_size: int) -> VerifiedCheckpoint:
    """Reads manifest and state, and checks the hashes of this rank's share of the files: every `world_size`-th one.

    Raises DamagedCheckpoint: one of them does not match.
    """
    manifest = CheckpointManifest.read(tag)
    files = sorted(manifest.files, key=lambda file: file.name)
    for file in [*files[rank::world_size], *(file for file in files if file.name == STATE)]:
        check_file(tag, file)
    return VerifiedCheckpoint(tag, manifest, read_state(tag))


def read_into(checkpoint: VerifiedCheckpoint, tensors: "Sequence[TensorState]") -> None:
    """Fills `tensors` with their elements. Raises DamagedCheckpoint."""
    with CheckpointReader(checkpoint.tag, checkpoint.manifest) as reader:
        for part, values in tensors:
            for kind in KINDS:
                values[kind].copy_(reader.read(part.name, kind, part.start, part.length))


class CheckpointReader(contextlib.ExitStack):
    """Reads elements of tensors from the files of one checkpoint; a context manager."""

    def __init__(self, tag: Path, manifest: CheckpointManifest) -> None:
        super().__init__()
        self._tag, self._manifest = tag, manifest
        self._open: dict[str, Any] = {}

    def read(self, name: str, kind: str, start: int, length: int) -> Tensor:
        """The elements [start, start + length) of the tensor `name`: fp32 (length,), on the CPU.

        kind: one of KINDS. Raises DamagedCheckpoint: also for an I/O error.
        """
        parts = [torch.empty(0)]
        for file, first, count in sorted(self._manifest.tensors[name].pieces, key=lambda piece: piece[1]):
            begin, end = max(start, first), min(start + length, first + count)
            if begin >= end:
                continue
            try:
                if file not in self._open:
                    self._open[file] = self.enter_context(safe_open(self._tag / file, framework="pt"))
                piece = self._open[file].get_slice(piece_key(kind, name, first))
                if piece.get_dtype() != "F32" or piece.get_shape() != [count]:
                    raise DamagedCheckpoint(f"{file}: {name} has another shape than {MANIFEST} says")
                parts.append(piece[begin - first : end - first])
            except (OSError, SafetensorError) as error:
                raise DamagedCheckpoint(f"{file}: {error}") from error
        return torch.cat(parts)


def piece_key(kind: str, name: str, start: int) -> str:
    """The name of a piece in its safetensors file."""
    return f"{kind}/{name}@{start}"


def read_whole(tag: Path, manifest: CheckpointManifest, kind: str) -> dict[str, Tensor]:
    """The whole fp32 tensors of one of KINDS by name. Raises DamagedCheckpoint."""
    with CheckpointReader(tag, manifest) as reader:
        return {
            name: reader.read(name, kind, 0, math.prod(tensor.shape)).view(tensor.shape)
            for name, tensor in manifest.tensors.items()
        }


def load_weights(directory: Path) -> dict[str, Tensor]:
    """The whole fp32 weights of every tensor by name, after checking all hashes. For a single process.

    directory: a checkpoint, or a directory of checkpoints (the newest complete one is used). Raises UserError: there is
    no complete checkpoint.
    """
    tag = directory if (directory / MANIFEST).exists() else find_latest(directory, content=True)
    if tag is None:
        raise UserError(f"{directory} holds no complete checkpoint; train first, or name another directory")
    try:
        return read_whole(tag, check(tag), KINDS[0])
    except DamagedCheckpoint as error:
        raise UserError(f"{tag} is damaged ({error}); name another checkpoint") from error
