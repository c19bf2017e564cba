"""Directories that a command makes as a whole: exports, the sample. Nothing of a person is ever removed.

A directory may be made if it is absent, empty, or has the marker of the same command. The marker,
`.albert-pretraining.json`, names the command, what it was made from, and each file with its checksum. The old directory
is renamed aside first. It is removed if it holds nothing but what its marker lists, unchanged; otherwise it stays.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from common.errors import UserError
from common.files.atomic import sync, temporary_beside, write_text
from common.files.checksums import file_checksum
from common.files.json_files import read_as
from common.files.locks import WAIT_SECONDS, beside, holding
from common.files.places import cannot_write, check_directory

MARKER = ".albert-pretraining.json"


@dataclass(frozen=True)
class Marker:
    """The content of MARKER."""

    command: str  # that made the directory
    source: str  # what it was made from; "" if that does not matter
    files: dict[str, str]  # xxh3_128 of each file, by its path in the directory
    format: Literal[2] = 2


def read_marker(directory: Path) -> Marker | None:
    """The marker of a directory; None if it has none. Raises UserError for a damaged one, or an earlier format."""
    path = directory / MARKER
    return read_as(path, Marker, "move the directory away") if os.path.lexists(path) else None


def check(directory: Path, command: str, source: str = "") -> None:
    """Raises UserError unless `command` may make `directory` from `source`; its parent must be writable."""
    directory = Path(os.path.abspath(directory))
    check_directory(directory.parent)
    if not os.path.lexists(directory):
        return
    if directory.is_symlink() or not directory.is_dir():
        kind = "a link" if directory.is_symlink() else "a file"
        raise UserError(f"{directory} is {kind}, and {command} would put a directory there; choose another place")
    if not any(directory.iterdir()):
        return
    marker, fault = read_marker(directory), ""
    if marker is None:
        fault = f"is not empty and has no {MARKER}, so {command} did not make it"
    elif marker.command != command:
        fault = f"was made by {marker.command}"
    elif marker.source != source:
        fault = f"was made from {marker.source}, not from {source}"
    if fault:
        raise UserError(f"{directory} {fault}; move it away, or choose another place")


@contextlib.contextmanager
def making(directory: Path, command: str, source: str = "") -> Iterator[Path]:
    """Yields an empty directory; on success it is marked and synced, and takes the place of `directory`.

    The old directory stays until the new one is complete. After a kill between the two renames, the old one is beside
    its place, as .NAME.*.tmp. UserError: see `check`, which is done before anything is written, and again at the end.
    """
    directory = Path(os.path.abspath(directory))
    check(directory, command, source)
    new, aside = temporary_beside(directory), temporary_beside(directory)
    try:
        new.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(directory, error) from None
    try:
        yield new
        files = files_below(new)
        for name in files:
            sync(new / name)
        marker = Marker(command, source, {name: file_checksum(new / name) for name in files})
        write_text(new / MARKER, json.dumps(asdict(marker), indent=1) + "\n")
        with holding(beside(directory), directory, WAIT_SECONDS):
            check(directory, command, source)
            if directory.exists():
                os.rename(directory, aside)
            os.rename(new, directory)
        sync(directory.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)  # made above, under a name that nothing else has
    if aside.exists():
        _put_away(aside, directory)


def _put_away(aside: Path, directory: Path) -> None:
    """Removes the old directory if all that it holds is ours and unchanged, else gives it a visible name."""
    marker = read_marker(aside)
    listed = {} if marker is None else marker.files
    paths = [(aside / name, listed.get(name)) for name in files_below(aside)]
    if all(not path.is_symlink() and file_checksum(path) == checksum for path, checksum in paths):
        shutil.rmtree(aside)
        return
    number = 1
    while os.path.lexists(kept := directory.with_name(f"{directory.name}.old-{number}")):
        number += 1
    os.rename(aside, kept)
    print(f"{kept} holds what was in {directory} before, some of which is not of this project")


def files_below(directory: Path) -> list[str]:
    """All files below `directory` except its marker, as relative paths; links count as files."""
    paths = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(name for path in paths if (name := path.relative_to(directory).as_posix()) != MARKER)
