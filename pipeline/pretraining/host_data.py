"""What each host does with the shards before training: it checks every byte (--verify), or copies them (--stage).

Rows are read in random order, so over the epochs every host reads every file. A set that fits in memory is then read
from there, and not from the network. Each host also finds damage in a copy of its own.

With --verify once, a file that this host has checked before is not read again: the cache directory has a record of what
the file was like (size, times, inode, checksum of the manifest) and of the checksums of its rows, with which training
compares every row that it reads. A file that was written again has another time or inode.
"""

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from common.environment import cache_directory
from common.errors import UserError
from common.files import atomic, outputs
from common.files.checksums import file_checksum
from common.files.places import cannot_write
from data_prep.format.shard_manifest import MANIFEST, ShardFile, ShardManifest, read_manifest
from data_prep.format.shards import BLOCK_ROWS, block_checksums
from data_prep.jobs.verify import problem_of
from pipeline.distributed.control import ControlGroup

Verify = Literal["always", "once", "never"]
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


def prepare(
    directories: Sequence[Path], stage: Path | None, control: ControlGroup, is_first: bool, verify: Verify
) -> list[HostSet]:
    """Checks the shard sets, and copies them to `stage` if it is given. Collective. Returns where this host reads them.

    The check reads all data, at the speed of the disk. Damaged data would waste far more GPU time. A copy that is there
    already is checked and used again.

    Args:
        is_first: whether this is the first rank of its host, which does the work.
        verify: "once": files that this host has checked before, and that are as they were, are not read. "never":
            only the sizes of the files are looked at.
    Raises:
        UserError: on all ranks, if a file has changed since it was written, or a disk has no room for the copy.
    """
    sets = [(directory, read_manifest(directory)) for directory in directories]
    stage = stage and stage.resolve()  # a link may lead to each host's own disk
    places = list(directories) if stage is None else [stage / _name(directory) for directory in directories]

    def work() -> list[HostSet]:
        if not is_first:
            return []
        if stage is not None:
            _prepare_stage(stage, places, sets, say=control.rank == 0)
        found = [_prepare_set(*one, place, verify) for one, place in zip(sets, places)]
        for (directory, _), place in zip(sets, places):
            if place != directory:
                _copy(directory / MANIFEST, place / MANIFEST)  # last: the copy is complete
        return [HostSet(place, checksums) for place, checksums in zip(places, found)]

    mine = control.all_or_raise(work)
    # All files agree with one manifest, so all hosts have found the same as rank 0.
    found: list[dict[str, Any]] = control.broadcast([host_set.checksums for host_set in mine])
    return [HostSet(place, checksums) for place, checksums in zip(places, found)]


def _name(directory: Path) -> str:
    """The name of a set's copy. Sets with the same name and other content have other copies."""
    return f"{directory.resolve().name}-{file_checksum(directory / MANIFEST)[:12]}"


def _prepare_stage(stage: Path, places: Sequence[Path], sets: Sequence[tuple[Path, ShardManifest]], say: bool) -> None:
    """Makes the directories of the copies. Raises UserError if they cannot hold the sets."""
    try:
        outputs.take(stage, "pretrain --stage")
        for place in places:
            place.mkdir(exist_ok=True)
            if place.is_symlink():
                raise UserError(f"{place} is a link; remove it, or choose another --stage")
        pairs = [(place / file.name, file) for place, (_, manifest) in zip(places, sets) for file in manifest.files]
        missing = sum(file.bytes for path, file in pairs if not _has_size(path, file))
        free = shutil.disk_usage(stage).free
    except OSError as error:
        raise cannot_write(Path(error.filename or stage), error, "--stage") from None
    if missing > free:
        raise UserError(
            f"--stage {stage} has {free / 1e9:.2f} GB free on host {socket.gethostname()}, and the copy needs "
            f"{missing / 1e9:.2f} GB more; free some space, or leave out --stage"
        )
    if missing and say:
        print(f"copying {missing / 1e9:.2f} GB of shards to {stage} on each host", flush=True)


def _has_size(path: Path, file: ShardFile) -> bool:
    return path.is_file() and path.stat().st_size == file.bytes


def _prepare_set(
    directory: Path, manifest: ShardManifest, place: Path, verify: Verify
) -> dict[str, NDArray[np.uint32]]:
    """The `block_checksums` of each shard of a set, whose files are checked or copied. UserError: one is damaged."""
    with ThreadPoolExecutor(READERS) as pool:
        checked = pool.map(lambda file: _check_or_copy(file, manifest, directory, place, verify), manifest.files)
        found = dict(zip((file.name for file in manifest.files), checked))
    return {} if verify == "never" else {file.name: found[file.name] for file in manifest.shards()}


def _check_or_copy(
    file: ShardFile, manifest: ShardManifest, directory: Path, place: Path, verify: Verify
) -> NDArray[np.uint32]:
    """Checks one file where this host reads it, and copies it there before if it is not there.

    Returns:
        Its `block_checksums`; none of a file without rows, or if nothing is checked.
    Raises:
        UserError: the file is damaged or cannot be copied.
    """
    path, nothing = place / file.name, np.zeros(0, np.uint32)
    if verify == "once" and file.rows and (known := _recall(path, file)) is not None:
        return known
    if verify == "never" and _has_size(path, file):
        return nothing
    before = _identity(path, file)
    problem = problem_of(place, file, manifest)
    if problem and place != directory:
        _copy(directory / file.name, path)
        before = _identity(path, file)
        problem = problem_of(place, file, manifest)
    if problem:
        raise UserError(
            f"{directory} is damaged: {problem}; run `python -m data_prep verify {directory}` for the whole list"
        )
    if not file.rows:
        return nothing
    checksums = block_checksums(path, file.rows)
    with contextlib.suppress(OSError, UserError):  # without a cache
        record = _record_of(path)
        record.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(record, json.dumps({"identity": before, "blocks": checksums.tobytes().hex()}))
    return checksums


def _recall(path: Path, file: ShardFile) -> NDArray[np.uint32] | None:
    """The `block_checksums` of a file that has not changed since it was checked; None if that is not known."""
    with contextlib.suppress(OSError, UserError, ValueError, KeyError, TypeError):
        record = json.loads(_record_of(path).read_bytes())
        blocks = np.frombuffer(bytes.fromhex(record["blocks"]), np.uint32)
        if record["identity"] == _identity(path, file) and len(blocks) == -(-file.rows // BLOCK_ROWS):
            return blocks
    return None


def _identity(path: Path, file: ShardFile) -> list[int | str]:
    """What a file is like while nobody writes to it; empty if it is not there."""
    if not path.is_file():
        return []
    status = path.stat()
    times = status.st_mtime_ns, status.st_ctime_ns
    return [status.st_size, *times, status.st_ino, status.st_dev, file.xxh3_128]


def _record_of(path: Path) -> Path:
    return cache_directory() / "checked" / f"{xxhash.xxh3_128_hexdigest(os.fsencode(path.absolute()))}.json"


def _copy(source: Path, target: Path) -> None:
    """Copies a file. Raises UserError if it cannot."""
    try:
        with atomic.replacing(target) as temporary:
            shutil.copyfile(source, temporary)
    except OSError as error:
        host, reason = socket.gethostname(), error.strerror
        raise UserError(f"{source} cannot be copied to {target.parent} on host {host}: {reason}") from None
