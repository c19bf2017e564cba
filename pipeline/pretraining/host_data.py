"""What each host does with the shards before training: it checks every byte, or copies them to a local disk (--stage).

Rows are read in random order, so over the epochs every host reads every file. The ranks of a host share the files of a
set, and each host reads all of them. A set that fits in memory is then read from there, and not from the network. Each
host also finds damage in a copy of its own.
"""

import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.environment import whole_number
from common.errors import UserError
from common.files import atomic, owned
from common.files.checksums import file_checksum
from common.files.places import cannot_write
from common.memory import available_bytes
from data_prep.format.shards import MANIFEST, ShardFile, ShardManifest, read_manifest
from data_prep.jobs.verify import problem_of
from pipeline.distributed.control import ControlGroup
from pipeline.engine.machine.shared_memory import ranks_on_host

_LEFT_SECONDS = 3600.0
"""A partial copy that has not grown for so long was left by a copy that was killed."""


class Share(NamedTuple):
    """Which of a host's files a rank works on: those whose number modulo `ranks` is `rank`."""

    rank: int
    ranks: int

    @classmethod
    def of_this_process(cls) -> "Share":
        """By the variables of the launcher."""
        ranks = ranks_on_host()
        return cls(whole_number("LOCAL_RANK") % ranks, ranks)


def prepare(directories: Sequence[Path], stage: Path | None, control: ControlGroup, share: Share) -> list[Path]:
    """Checks the shard sets, and copies them to `stage` if it is given. Collective. Returns where this host reads them.

    The data is read once per start, at the speed of the disk. Damaged data would waste far more GPU time. A copy that
    is there already is checked and used again.

    Raises:
        UserError: on all ranks, if a file has changed since it was written, or a disk has no room for the copy.
    """
    sets = [(directory, read_manifest(directory)) for directory in directories]
    stage = stage and stage.resolve()  # a link may lead to each host's own disk
    places = list(directories) if stage is None else [stage / _name(directory) for directory in directories]
    if stage is not None:
        _agree(control, _problem_of_stage(stage, places, sets, say=control.rank == 0) if share.rank == 0 else "")
    for (directory, manifest), place in zip(sets, places):
        mine = manifest.files[share.rank :: share.ranks]
        # Up to the first problem; each rank then asks the others.
        _agree(control, next(filter(None, (_problem_of(file, manifest, directory, place) for file in mine)), ""))
        if stage is not None:
            _agree(control, _copied(directory / MANIFEST, place) if share.rank == 0 else "")
    control.barrier()
    return places


def does_not_fit(directories: Sequence[Path]) -> str:
    """A note if the shards are larger than this host's free memory; else ""."""
    size = sum(file.bytes for directory in directories for file in read_manifest(directory).files)
    free = available_bytes()
    if free is None or size < free:
        return ""
    return (
        f"note: the shards have {size / 1e9:.1f} GB, and this host has {free / 1e9:.1f} GB of free memory: rows are "
        "read from storage, in random order; on network storage use --stage DIR with a local disk"
    )


def _name(directory: Path) -> str:
    """The name of a set's copy. Sets with the same name and other content have other copies."""
    return f"{directory.resolve().name}-{file_checksum(directory / MANIFEST)[:12]}"


def _problem_of_stage(
    stage: Path, places: Sequence[Path], sets: Sequence[tuple[Path, ShardManifest]], say: bool
) -> str:
    """Makes the directories of the copies. Says why they cannot hold the sets; "" if they can."""
    try:
        owned.take_workplace(stage, "pretrain --stage")
        for place in places:
            place.mkdir(exist_ok=True)
            _remove_leftovers(place)
        missing = sum(
            file.bytes
            for place, (_, manifest) in zip(places, sets)
            for file in manifest.files
            if not (place / file.name).is_file() or (place / file.name).stat().st_size != file.bytes
        )
        free = shutil.disk_usage(stage).free
    except UserError as error:
        return str(error)
    except OSError as error:
        return str(cannot_write(stage, error, "--stage"))
    if missing > free:
        return (
            f"--stage {stage} has {free / 1e9:.2f} GB free on host {socket.gethostname()}, and the copy needs "
            f"{missing / 1e9:.2f} GB more; free some space, or leave out --stage"
        )
    if missing and say:
        print(f"copying {missing / 1e9:.2f} GB of shards to {stage} on each host", flush=True)
    return ""


def _remove_leftovers(place: Path) -> None:
    """Removes what copies that were killed have left. Another run may be copying: what has grown lately stays."""
    for path in place.iterdir():
        if atomic.TEMPORARY.fullmatch(path.name) and time.time() - path.stat().st_mtime > _LEFT_SECONDS:
            path.unlink(missing_ok=True)


def _problem_of(file: ShardFile, manifest: ShardManifest, directory: Path, place: Path) -> str:
    """Checks one file where this host reads it, and copies it there before if it is not there; "" without a problem."""
    problem = problem_of(place, file, manifest)
    if problem and place != directory:
        if failed := _copied(directory / file.name, place):
            return failed
        problem = problem_of(place, file, manifest)
    if not problem:
        return ""
    return f"{directory} is damaged: {problem}; run `python -m data_prep verify {directory}` for the whole list"


def _copied(source: Path, place: Path) -> str:
    """Copies a file into the directory `place`. Says why it cannot; "" if it has."""
    try:
        _copy(source, place / source.name)
    except OSError as error:
        return f"{source} cannot be copied to {place} on host {socket.gethostname()}: {error.strerror}"
    return ""


def _copy(source: Path, target: Path) -> None:
    with atomic.replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def _agree(control: ControlGroup, problem: str) -> None:
    if found := control.first_problem(problem):
        raise UserError(found)
