"""The form of a checkpoint on disk.

    checkpoints/step-00001000/manifest.json   sizes and hashes of the other files, and where each tensor is
    checkpoints/step-00001000/state.json      step, samples, loss scale, settings, versions, the caller's own state
    checkpoints/step-00001000/rank-00000.safetensors ...
                                              "weight/NAME@START", "exp_avg/...", "exp_avg_sq/...": 1-D fp32 elements
                                              of tensor NAME from START on, each element in exactly one file

The form is independent of ranks and ZeRO stages: a load takes the elements that it needs from any of the files. A
directory is a checkpoint only if it has a manifest that matches its own hash. The name of a directory that is being
written begins with a dot.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.atomic import TEMPORARY
from common.files.checksums import FileEntry, content_checksum, problem_of_file
from common.files.json_files import Count, check_as, parse_object, read_bytes

FORMAT = 1
MANIFEST = "manifest.json"
STATE = "state.json"

_FILE = r"rank-\d{5,}\.safetensors|state\.json"
_OF_SAFETENSORS = r"\.tmp[0-9A-Za-z]{6}"  # what a kill leaves while the library writes a file
OWN_FILES = re.compile(f"{_FILE}|{re.escape(MANIFEST)}|{_OF_SAFETENSORS}|{TEMPORARY.pattern}")
"""The names of the files that a save writes into a checkpoint's directory."""
BYTES_A_PARAMETER = 12  # bytes that a checkpoint holds of each parameter: the weight and both moments, in fp32


class DamagedCheckpoint(Exception):
    """A checkpoint does not match its manifest; the message names the file and the fault."""


@contextlib.contextmanager
def as_damage() -> Iterator[None]:
    """Raises a UserError of the block, which is about a file of a checkpoint, as DamagedCheckpoint."""
    try:
        yield
    except UserError as error:
        raise DamagedCheckpoint(str(error)) from error


def read_content(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint. Raises UserError. Losses may be NaN or infinite in it."""
    return parse_object(read_bytes(path, "restore it"), path.name, "restore it", allow_nan=True)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's shape, its parameter group when it was saved, and its pieces as (file, start, length)."""

    shape: tuple[Count, ...]
    group: Count
    pieces: tuple[tuple[str, Count, Count], ...]


@dataclass(frozen=True)
class CheckpointManifest:
    """The record of a complete checkpoint."""

    step: Count  # optimizer steps made, including skipped ones
    score: float | None  # the caller's measure of quality, higher is better; None without one
    tensors: dict[str, StoredTensor]  # by the parameter's name
    files: list[FileEntry] = field(default_factory=list)
    milestone: bool = False  # whether it is kept for ever
    # digest of the data of the score; scores on other data are not compared. "" if it never changes.
    scored_on: str = ""

    def to_json(self) -> str:
        """The text of manifest.json, which contains the hash of its own content."""
        files = {file.name: {"bytes": file.bytes, "xxh3_128": file.xxh3_128} for file in self.files}
        content = {"format": FORMAT, **asdict(self), "files": files}
        return json.dumps({"content": content, "xxh3_128": content_checksum(content)}) + "\n"

    @classmethod
    def read(cls, tag: Path) -> "CheckpointManifest":
        """The manifest of the checkpoint `tag`.

        Raises DamagedCheckpoint: it cannot be read, or does not match its own hash.
        """
        with as_damage():
            record = read_content(tag / MANIFEST)
        content = record.get("content")
        if not isinstance(content, dict) or record.get("xxh3_128") != content_checksum(content):
            raise DamagedCheckpoint(f"{MANIFEST}: checksum")
        if (form := content.pop("format", None)) != FORMAT:
            raise DamagedCheckpoint(f"{MANIFEST}: format {form!r:.40}, not {FORMAT}")
        try:
            content["files"] = [{"name": name, **entry} for name, entry in content["files"].items()]
        except (KeyError, TypeError, AttributeError):
            raise DamagedCheckpoint(f"{MANIFEST}: files") from None
        with as_damage():
            return check_as(content, cls, MANIFEST, "restore it")


def check(tag: Path, content: bool = True, share: slice = slice(None)) -> CheckpointManifest:
    """The manifest of a checkpoint, after checking the hash of every file, or only its size.

    share: of the files in the order of their names; state.json is always checked. Raises DamagedCheckpoint.
    """
    manifest = CheckpointManifest.read(tag)
    files = sorted(manifest.files, key=lambda file: file.name)
    for file in [*files[share], *(file for file in files if file.name == STATE)]:
        try:
            problem = "" if file.is_in(tag) else f"{file.name} is missing or has another size"
            problem = problem or (problem_of_file(tag / file.name, file) if content else "")
        except OSError as error:  # all ranks then take an older checkpoint together
            problem = f"{file.name}: {error.strerror}"
        if problem:
            raise DamagedCheckpoint(problem)
    return manifest
