"""What each host does with the shards before training: it checks every byte (--verify), or copies them (--stage).

Rows are read in random order, so over the epochs every host reads every file. A set that fits in memory is then read
from there, and not from the network. Each host also finds damage in a copy of its own.
"""

import shutil
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.files import atomic, outputs
from common.files.checksums import file_checksum
from common.files.places import cannot_write
from data_prep.format.shard_manifest import MANIFEST, ShardFile, ShardManifest, read_manifest
from data_prep.format.shards import block_checksums
from data_prep.jobs.verify import problem_of
from pipeline.distributed.control import ControlGroup

READERS = 8
"""Threads that check files. The checksums are computed without Python's lock."""


class HostSet(NamedTuple):
    """A shard set where this host reads it.

    Attributes:
        place: its directory.
        checksums: by name, the `block_checksums` of each shard when it was checked; none if nothing was.
    """

    place: Path
    checksums: dict[str, NDArray[np.uint32]]


def check_on_host(
    directories: Sequence[Path], stage: Path | None, control: ControlGroup, is_first: bool, verify: bool
) -> list[HostSet]:
    """Checks the shard sets, and copies them to `stage` if it is given. Collective. Returns where this host reads them.

    The check reads all data, at the speed of the disk. Damaged data would waste far more GPU time. A copy that is there
    already is checked and used again.

    Args:
        is_first: whether this is the first rank of its host, which does the work.
        verify: False looks only at the sizes of the files.
    Raises:
        UserError: on all ranks, if a file has changed since it was written, or a disk has no room for the copy.
    """
    sets = [(directory, read_manifest(directory)) for directory in directories]
    stage = stage and stage.resolve()  # a link may lead to each host's own disk
    places = [directory if stage is None else _copy_of(directory, stage) for directory in directories]

    def work() -> list[dict[str, NDArray[np.uint32]]]:
        if not is_first:
            return []
        if stage is not None:
            _make_directories(stage, places)
            if control.rank == 0 and not all((place / MANIFEST).exists() for place in places):
                print(f"copying the shards to {stage} on each host", flush=True)
        checksums = [_check_set(*one, place, verify) for one, place in zip(sets, places)]
        for directory, place in zip(directories, places):
            if place != directory:
                _copy(directory / MANIFEST, place / MANIFEST)  # last: the copy is complete
        return checksums

    # All files agree with one manifest, so all hosts have found the same as rank 0.
    checksums: list[dict[str, Any]] = control.broadcast(control.all_or_raise(work))
    return [HostSet(place, of_set) for place, of_set in zip(places, checksums)]


def _copy_of(directory: Path, stage: Path) -> Path:
    """The place of a set's copy. Sets with the same name and other content have other copies."""
    return stage / f"{directory.resolve().name}-{file_checksum(directory / MANIFEST)[:12]}"


def _make_directories(stage: Path, places: Sequence[Path]) -> None:
    """Makes the directories of the copies. Raises UserError if `stage` is not ours or cannot be written."""
    try:
        outputs.take(stage, "pretrain --stage")
        for place in places:
            place.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(Path(error.filename or stage), error, "--stage") from None


def _has_size(path: Path, file: ShardFile) -> bool:
    return path.is_file() and path.stat().st_size == file.bytes


def _check_set(directory: Path, manifest: ShardManifest, place: Path, verify: bool) -> dict[str, NDArray[np.uint32]]:
    """Checks each file of a set at its place, and copies it there before if need be.

    Returns:
        The `block_checksums` of each shard; none if nothing is verified.
    Raises:
        UserError: a file is damaged or cannot be copied.
    """

    def check(file: ShardFile) -> None:
        if not verify and _has_size(place / file.name, file):
            return
        problem = problem_of(place, file, manifest)
        if problem and place != directory:
            _copy(directory / file.name, place / file.name)
            problem = problem_of(place, file, manifest)
        if problem:
            raise UserError(
                f"{directory} is damaged: {problem}; run `python -m data_prep verify {directory}` for the whole list"
            )

    shards = manifest.shards() if verify else ()
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(check, manifest.files))
        blocks = pool.map(lambda file: block_checksums(place / file.name, file.rows), shards)
        return dict(zip((file.name for file in shards), blocks))


def _copy(source: Path, target: Path) -> None:
    """Copies a file. Raises UserError if it cannot."""
    try:
        with atomic.replacing(target) as temporary:
            shutil.copyfile(source, temporary)
    except OSError as error:
        host, reason = socket.gethostname(), error.strerror
        raise UserError(f"{source} cannot be copied to {target.parent} on host {host}: {reason}") from None
