"""What each host does with the shards before training: it checks every byte (--verify), or copies them (--stage).

Rows are read in random order, so over the epochs every host reads every file. The ranks of a host share the files of a
set, and each host reads all of them. A set that fits in memory is then read from there, and not from the network. Each
host also finds damage in a copy of its own.
"""

import contextlib
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.environment import whole_number
from common.errors import UserError
from common.files import atomic, outputs
from common.files.checksums import file_checksum
from common.files.places import cannot_write
from data_prep.format.manifest import MANIFEST, ShardFile, ShardManifest, read_manifest
from data_prep.format.shards import BLOCK_ROWS, block_checksums
from data_prep.jobs.verify import problem_of
from pipeline.distributed.control import ControlGroup
from pipeline.engine.ranks import ranks_on_host
from pipeline.pretraining import checked_files
from pipeline.pretraining.checked_files import Identity

Verify = Literal["always", "once", "never"]


class Share(NamedTuple):
    """Which of a host's files a rank works on: those whose number modulo `ranks` is `rank`."""

    rank: int
    ranks: int

    @classmethod
    def of_this_process(cls) -> "Share":
        """By the variables of the launcher."""
        ranks = ranks_on_host()
        return cls(whole_number("LOCAL_RANK") % ranks, ranks)


class HostSet(NamedTuple):
    """A shard set where this host reads it.

    Attributes:
        place: its directory.
        checksums: by name, the `block_checksums` of each shard when it was checked; none if nothing was.
    """

    place: Path
    checksums: dict[str, NDArray[np.uint32]]


def prepare(
    directories: Sequence[Path], stage: Path | None, control: ControlGroup, share: Share, verify: Verify = "always"
) -> list[HostSet]:
    """Checks the shard sets, and copies them to `stage` if it is given. Collective. Returns where this host reads them.

    The check reads all data, at the speed of the disk. Damaged data would waste far more GPU time. A copy that is there
    already is checked and used again.

    Args:
        verify: "once": files that this host has checked before, and that are as they were, are not read. "never":
            only the sizes of the files are looked at.
    Raises:
        UserError: on all ranks, if a file has changed since it was written, or a disk has no room for the copy.
    """
    sets = [(directory, read_manifest(directory)) for directory in directories]
    stage = stage and stage.resolve()  # a link may lead to each host's own disk
    places = list(directories) if stage is None else [stage / _name(directory) for directory in directories]

    mine: dict[tuple[Path, str], NDArray[np.uint32]] = {}

    def prepare_copies() -> None:
        if stage is not None and share.rank == 0:
            _prepare_stage(stage, places, sets, say=control.rank == 0)

    def prepare_share() -> None:
        for (directory, manifest), place in zip(sets, places):
            for file in manifest.files[share.rank :: share.ranks]:
                mine[place, file.name] = _check_or_copy(file, manifest, directory, place, verify)

    def finish_copies() -> None:
        if stage is not None and share.rank == 0:
            for directory, place in zip(directories, places):
                _copy(directory / MANIFEST, place / MANIFEST)

    for work in (prepare_copies, prepare_share, finish_copies):
        control.all_or_raise(work)
    # All hosts have the same checksums, because their files agree with one manifest. So the sum over the ranks, divided
    # by the number of hosts, is exact: it is below 2**53.
    found = [HostSet(place, {}) for place in places]
    if verify == "never":
        return found
    files = [(host_set, file) for host_set, (_, manifest) in zip(found, sets) for file in manifest.shards()]
    lengths = [-(-file.rows // BLOCK_ROWS) for _, file in files]
    flat = [mine.get((one.place, file.name), np.zeros(length)) for (one, file), length in zip(files, lengths)]
    *total, hosts = control.sum([*np.concatenate(flat).tolist(), float(share.rank == 0)])
    parts = np.split((np.array(total) / hosts).astype(np.uint32), np.cumsum(lengths)[:-1])
    for (host_set, file), checksums in zip(files, parts):
        host_set.checksums[file.name] = checksums
    return found


def _name(directory: Path) -> str:
    """The name of a set's copy. Sets with the same name and other content have other copies."""
    return f"{directory.resolve().name}-{file_checksum(directory / MANIFEST)[:12]}"


def _prepare_stage(stage: Path, places: Sequence[Path], sets: Sequence[tuple[Path, ShardManifest]], say: bool) -> None:
    """Makes the directories of the copies. Raises UserError if they cannot hold the sets."""
    try:
        outputs.take(stage, "pretrain --stage")
        for place in places:
            with contextlib.suppress(FileExistsError):
                place.mkdir()
            if place.is_symlink():
                raise UserError(f"{place} is a link; remove it, or choose another --stage")
        missing = sum(
            file.bytes
            for place, (_, manifest) in zip(places, sets)
            for file in manifest.files
            if not (place / file.name).is_file() or (place / file.name).stat().st_size != file.bytes
        )
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


def _check_or_copy(
    file: ShardFile, manifest: ShardManifest, directory: Path, place: Path, verify: Verify
) -> NDArray[np.uint32]:
    """Checks one file where this host reads it, and copies it there before if it is not there.

    Returns its `block_checksums`, none of a file without rows or if nothing is checked.

    Raises:
        UserError: the file is damaged or cannot be copied.
    """
    path = place / file.name
    if verify == "once" and file.rows and (known := checked_files.recall(path, file)) is not None:
        return known
    is_there = path.is_file() and path.stat().st_size == file.bytes
    if verify == "never" and is_there:
        return np.zeros(0, np.uint32)
    before = Identity.of(path, file) if is_there else None
    problem = problem_of(place, file, manifest)
    if problem and place != directory:
        _copy(directory / file.name, path)
        before = Identity.of(path, file)
        problem = problem_of(place, file, manifest)
    if problem or before is None:
        raise UserError(
            f"{directory} is damaged: {problem}; run `python -m data_prep verify {directory}` for the whole list"
        )
    checksums = block_checksums(path, file.rows) if file.rows else np.zeros(0, np.uint32)
    if file.rows:
        checked_files.remember(path, before, checksums)
    return checksums


def _copy(source: Path, target: Path) -> None:
    """Copies a file. Raises UserError if it cannot."""
    try:
        with atomic.replacing(target) as temporary:
            shutil.copyfile(source, temporary)
    except OSError as error:
        host, reason = socket.gethostname(), error.strerror
        raise UserError(f"{source} cannot be copied to {target.parent} on host {host}: {reason}") from None
