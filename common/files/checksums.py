"""Checksums of files and manifests: xxh3_128, in hexadecimal. Entries of files, and manifests that list them."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from common.errors import UserError
from common.files.atomic import write_text
from common.files.json_files import Count, check_as, read_object
from common.files.places import plain_name

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class FileEntry:
    """A file as manifests and records list it: name in its directory, size in bytes, xxh3_128 of its content."""

    name: str
    bytes: Count
    xxh3_128: str

    def is_in(self, directory: Path) -> bool:
        """Whether the file is in `directory`, with this size. Does not read it."""
        path = directory / self.name
        return path.is_file() and path.stat().st_size == self.bytes


def describe_file(path: Path) -> FileEntry:
    """Returns the entry of the complete file at `path`."""
    return FileEntry(path.name, path.stat().st_size, file_checksum(path))


def file_checksum(path: Path) -> str:
    """Returns the checksum of a file's bytes. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return str(hashlib.file_digest(file, xxhash.xxh3_128).hexdigest())


def problem_of_file(path: Path, entry: FileEntry) -> str:
    """Describes how a file differs from its entry; "" if it does not."""
    if not path.is_file():
        return f"{entry.name} is missing"
    try:
        checksum = file_checksum(path)
    except OSError as error:  # usually a bad sector
        return f"{entry.name} cannot be read ({error.strerror})"
    return "" if checksum == entry.xxh3_128 else f"the content of {entry.name} has changed"


def content_checksum(content: Mapping[str, Any]) -> str:
    """Returns the checksum of a manifest's content, which must not include the checksum itself."""
    return str(xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode()))


def write_manifest(path: Path, manifest: Any, **layout: Any) -> None:
    """Writes a dataclass as a manifest, with its checksum. layout: options of `json.dumps`."""
    content = asdict(manifest)
    write_text(path, json.dumps(content | {"xxh3_128": content_checksum(content)}, **layout) + "\n")


def read_manifest(path: Path, job: str, kind: type[Kind], version: int, listed: re.Pattern[str], remedy: str) -> Kind:
    """Reads a manifest of a `job`: the JSON of a `kind` with "format_version", "files" and its own "xxh3_128".

    UserError, ending with `remedy`: it is missing, damaged, of another version, or lists a file unlike `listed`.
    """
    if not path.is_file():
        problem = f"has no {path.name}" if path.parent.is_dir() else "is not a directory"
        raise UserError(f"{path.parent} {problem}; name one that `python -m data_prep {job}` wrote to its end")
    content = read_object(path, remedy)
    if (found_version := content.get("format_version")) != version:
        raise UserError(f"{path} has format version {found_version!r:.40}, this program reads {version}; {remedy}")
    checksum = content.pop("xxh3_128", None)
    if checksum != content_checksum(content):
        raise UserError(f"{path} is damaged (its checksum does not fit its content); {remedy}")
    manifest = check_as(content, kind, path, remedy)
    for file in content["files"]:
        plain_name(file["name"], path, listed)
    return manifest
