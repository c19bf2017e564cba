"""What a checkpoint is on disk, and how to tell a whole one; nothing here needs an engine.

    checkpoints/latest                        the name of the newest one, for people and for noticing its loss
    checkpoints/step-00001000/manifest.json   the other files with their sizes and hashes, and where each tensor is
    checkpoints/step-00001000/state.json      step, samples, loss scale, settings, versions, the caller's own state
    checkpoints/step-00001000/rank-00000.safetensors ...
                                              "weight/NAME@START", "exp_avg/...", "exp_avg_sq/...": 1-D fp32 elements
                                              of tensor NAME from START on, each element in exactly one file

The form knows nothing of ranks and ZeRO stages: a reader takes the elements it needs from wherever they are. A
directory without a manifest that matches its own hash is not a checkpoint; one that is being written has a name
that begins with a dot.
"""

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from data_prep.atomic import fsync_directory, fsync_file, write_text
from data_prep.errors import UserError

FORMAT = 1
MANIFEST = "manifest.json"
STATE = "state.json"
LATEST = "latest"
KINDS = ("weight", "exp_avg", "exp_avg_sq")
BYTES_A_PARAMETER = 4 * len(KINDS)

_NAME = re.compile(r"step-(\d{8,})")
_LEFTOVER = re.compile(r"\.(step-\d{8,})\.(tmp|replaced|removed)")


class DamagedCheckpoint(Exception):
    """A checkpoint is not what its manifest says; the message names the file and the fault."""


@dataclass(frozen=True)
class File:
    """A file of a checkpoint: its size in bytes and the xxh3_128 of its content (32 hexadecimal digits)."""

    bytes: int
    xxh3_128: str

    @classmethod
    def of(cls, path: Path) -> "File":
        """The record of a file as it is now."""
        return cls(path.stat().st_size, hash_file(path))


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's shape, its parameter group when it was saved, and its pieces as (file, start, length)."""

    shape: tuple[int, ...]
    group: int
    pieces: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Manifest:
    """The record of a whole checkpoint.

    Attributes:
        step: optimizer steps before it, skipped ones among them.
        score: the caller's measure of how good it is, higher is better; None if there was none.
        files: every other file, by name.
        tensors: by the parameter's name.
    """

    step: int
    score: float | None
    files: dict[str, File]
    tensors: dict[str, StoredTensor]

    def to_json(self) -> str:
        """The text of manifest.json, which carries the hash of its own content."""
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps({"content": content, "xxh3_128": _hash_of(content)}) + "\n"

    @classmethod
    def read(cls, tag: Path) -> "Manifest":
        """Raises DamagedCheckpoint unless there is a manifest that matches its own hash."""
        try:
            record = json.loads((tag / MANIFEST).read_text(encoding="utf-8"))
            content = record["content"]
            if record["xxh3_128"] != _hash_of(content):
                raise DamagedCheckpoint(f"{MANIFEST}: checksum")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpoint(f"{MANIFEST}: missing or unreadable") from error
        if content["format"] != FORMAT:
            raise DamagedCheckpoint(f"{MANIFEST}: format {content['format']}, not {FORMAT}")
        return cls(
            content["step"],
            content["score"],
            {name: File(**file) for name, file in content["files"].items()},
            {
                name: StoredTensor(
                    tuple(tensor["shape"]),
                    tensor["group"],
                    tuple((file, start, length) for file, start, length in tensor["pieces"]),
                )
                for name, tensor in content["tensors"].items()
            },
        )


def _hash_of(content: Mapping[str, Any]) -> str:
    return str(xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode()))


def hash_file(path: Path) -> str:
    """The xxh3_128 of a file's bytes."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 23):
            digest.update(block)
    return str(digest.hexdigest())


def tag_name(step: int) -> str:
    """The name of the checkpoint made after `step` steps."""
    return f"step-{step:08d}"


def step_of(tag: Path) -> int:
    """The steps before the checkpoint `tag`."""
    return int(tag.name.split("-")[1])


def tags(directory: Path) -> list[Path]:
    """The directories named like checkpoints, the newest first; whether they are whole is another question."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=step_of, reverse=True)


def check_file(tag: Path, name: str, file: File, content: bool) -> None:
    """Raises DamagedCheckpoint unless the file is there with its size and, if `content`, its hash."""
    try:
        size = (tag / name).stat().st_size
        if size != file.bytes:
            raise DamagedCheckpoint(f"{name}: {size} bytes instead of {file.bytes}")
        if content and hash_file(tag / name) != file.xxh3_128:
            raise DamagedCheckpoint(f"{name}: checksum")
    except OSError as error:
        raise DamagedCheckpoint(f"{name}: {error.strerror}") from error


def check(tag: Path, content: bool = True) -> Manifest:
    """The manifest, after checking every file's size and, if `content`, its hash. Raises DamagedCheckpoint."""
    manifest = Manifest.read(tag)
    for name, file in manifest.files.items():
        check_file(tag, name, file, content)
    return manifest


def find_latest(directory: Path, content: bool = False) -> Path | None:
    """The newest whole checkpoint in `directory`, or None. With `content`, every byte is read and checked."""
    for tag in tags(directory):
        with contextlib.suppress(DamagedCheckpoint):
            check(tag, content)
            return tag
    return None


def read_state(tag: Path) -> dict[str, Any]:
    """state.json of a checkpoint."""
    state: dict[str, Any] = json.loads((tag / STATE).read_text(encoding="utf-8"))
    return state


class Reader:
    """Reads elements of tensors from the files of one checkpoint; a context manager.

    What it returns is fp32 on the CPU. I/O errors are raised as DamagedCheckpoint.
    """

    def __init__(self, tag: Path, manifest: Manifest) -> None:
        self._tag = tag
        self._manifest = manifest
        self._stack = contextlib.ExitStack()
        self._open: dict[str, Any] = {}

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def read(self, name: str, kind: str, start: int, length: int) -> Iterator[tuple[int, Tensor]]:
        """Yields (offset, elements): parts that together are the elements [start, start + length) of a tensor.

        Args:
            name: of the tensor.
            kind: one of KINDS.
        """
        for file, first, count in self._manifest.tensors[name].pieces:
            begin, end = max(start, first), min(start + length, first + count)
            if begin >= end:
                continue
            try:
                if file not in self._open:
                    self._open[file] = self._stack.enter_context(safe_open(self._tag / file, framework="pt"))
                piece = self._open[file].get_slice(piece_key(kind, name, first))
                yield begin - start, piece[begin - first : end - first]
            except (OSError, SafetensorError) as error:
                raise DamagedCheckpoint(f"{file}: {error}") from error


def piece_key(kind: str, name: str, start: int) -> str:
    """The name of a piece in its safetensors file."""
    return f"{kind}/{name}@{start}"


def load_weights(directory: Path) -> dict[str, Tensor]:
    """The fp32 weights of every tensor, whole, by name; checked against their hashes. For one process.

    Args:
        directory: a checkpoint, or a directory of them (the newest whole one is taken).
    Raises:
        UserError: there is no whole checkpoint.
    """
    if (directory / MANIFEST).exists():
        tag: Path | None = directory
    else:
        tag = find_latest(directory, content=True)
    if tag is None:
        raise UserError(f"{directory} holds no complete checkpoint; train first, or name another directory")
    try:
        manifest = check(tag)
        weights = {}
        with Reader(tag, manifest) as reader:
            for name, tensor in manifest.tensors.items():
                whole = torch.empty(math.prod(tensor.shape))
                for offset, part in reader.read(name, "weight", 0, whole.numel()):
                    whole[offset : offset + part.numel()] = part
                weights[name] = whole.view(tensor.shape)
    except DamagedCheckpoint as error:
        raise UserError(f"{tag} is damaged ({error}); name another checkpoint") from error
    return weights


def publish(temporary: Path, tag: Path, manifest: Manifest) -> None:
    """Turns a directory, all of whose other files are on disk, into the checkpoint `tag`, and the latest one.

    Whenever it is killed, the checkpoint is there whole or not at all, and the others are as they were.
    """
    (temporary / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    fsync_file(temporary / MANIFEST)
    fsync_directory(temporary)
    aside = tag.with_name(f".{tag.name}.replaced")
    if tag.exists():  # of a run that fell back to an older one, or that saved this step before
        os.replace(tag, aside)
    os.replace(temporary, tag)
    fsync_directory(tag.parent)
    with contextlib.suppress(OSError):  # the checkpoint stands without it
        write_text(tag.parent / LATEST, tag.name + "\n")
    shutil.rmtree(aside, ignore_errors=True)


def remove(tag: Path) -> None:
    """Removes a checkpoint; killed halfway, it leaves a directory that `settle` takes away."""
    aside = tag.with_name(f".{tag.name}.removed")
    os.replace(tag, aside)
    shutil.rmtree(aside)


def settle(directory: Path) -> None:
    """Puts in order what a killed `publish` or `remove` has left. Only one process may call it, and none save."""
    for path in list(directory.iterdir()):
        match = _LEFTOVER.fullmatch(path.name)
        if match is None:
            if path.name.startswith(f".{LATEST}."):
                path.unlink()
        elif match[2] == "replaced" and not (directory / match[1]).exists():
            os.replace(path, directory / match[1])
        else:
            shutil.rmtree(path, ignore_errors=True)


def find_best(directory: Path) -> Path | None:
    """The checkpoint with the best score, the newest of equals; None where none has a score."""
    scored = []
    for tag in tags(directory):
        with contextlib.suppress(DamagedCheckpoint):
            score = Manifest.read(tag).score
            if score is not None:
                scored.append((score, tag.name))
    return directory / max(scored)[1] if scored else None


def prune(directory: Path, keep: int, newest: Path) -> None:
    """Removes all checkpoints but `newest`, the `keep` - 1 before it, and the best.

    Later ones than `newest`, which has just been made, were damaged when the run was started from an older one: they
    must neither count among the newest nor be taken for the best.
    """
    for tag in tags(directory):
        if step_of(tag) > step_of(newest):
            remove(tag)
    best = find_best(directory)
    for tag in tags(directory)[keep:]:
        if tag != best:
            remove(tag)
