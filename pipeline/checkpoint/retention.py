"""The checkpoints of one run: finds the newest and the best, publishes new ones and deletes old ones.

A save that is killed at any moment leaves each checkpoint complete or absent. Directories whose name begins with a dot
are parts of an interrupted save or deletion; `clean_up_interrupted` removes them. Only files that a save has written
are ever deleted, and never through a link: a checkpoint that a person moved away and linked here stays.
"""

import contextlib
import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

from common.errors import UserError
from common.files import locks, owned
from common.files.atomic import TEMPORARY, fsync_directory, fsync_file, write_text
from common.files.places import open_directory
from pipeline.checkpoint.manifest import LATEST, MANIFEST, OWN_FILES, CheckpointManifest, DamagedCheckpoint, check

_NAME = re.compile(r"step-(\d{8,})")
_LEFTOVER = re.compile(r"\.(step-\d{8,})\.(tmp|replaced|removed)")
_OWN_LATEST = re.compile(LATEST)


def tag_name(step: int) -> str:
    """The name of the checkpoint that is made after `step` steps."""
    return f"step-{step:08d}"


def is_tag_name(name: str) -> bool:
    """Whether `name` is that of a checkpoint."""
    return _NAME.fullmatch(name) is not None


def step_of(tag: Path) -> int:
    """The number of steps before the checkpoint `tag`."""
    return int(tag.name.split("-")[1])


def tags(directory: Path, last: int | None = None) -> list[Path]:
    """The directories with a checkpoint's name, newest first, of at most `last` steps. They may be damaged."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted((tag for tag in found if last is None or step_of(tag) <= last), key=step_of, reverse=True)


def find_latest(directory: Path, content: bool = False) -> Path | None:
    """The newest complete checkpoint in `directory`; None if there is none.

    Args:
        content: check the hashes of all files, not only their sizes.
    """
    for tag in tags(directory):
        with contextlib.suppress(DamagedCheckpoint):
            check(tag, content)
            return tag
    return None


def find_best(directory: Path) -> Path | None:
    """The checkpoint with the best score, the newest of equals; None if none has a score."""
    scored = []
    for tag in tags(directory):
        with contextlib.suppress(DamagedCheckpoint):
            score = CheckpointManifest.read(tag).score
            if score is not None:
                scored.append((score, tag.name))
    return directory / max(scored)[1] if scored else None


def make_temporary(tag: Path) -> None:
    """Makes the temporary directory into which all ranks write the checkpoint `tag`.

    Raises:
        OSError: I/O error, or the directory of all checkpoints is a link.
        UserError: the run was moved or removed while this process trains in it.
    """
    locks.check_still_there(tag)
    tag.parent.mkdir(parents=True, exist_ok=True)
    if tag.parent.is_symlink():
        raise OSError(errno.ENOTDIR, "it is a link", str(tag.parent))
    clean_up_interrupted(tag.parent)
    temporary_of(tag).mkdir()


def temporary_of(tag: Path) -> Path:
    """The directory in which the checkpoint `tag` is written."""
    return tag.with_name(f".{tag.name}.tmp")


def publish(temporary: Path, tag: Path, manifest: CheckpointManifest) -> os.stat_result | None:
    """Turns `temporary` into the checkpoint `tag` and makes it the latest. Its files must be complete and synced.

    If the process is killed, the new checkpoint is complete or absent, and the others are unchanged.

    Returns:
        What tells its directory from others. None if the file system gives a directory that is renamed a new inode.
    Raises:
        OSError: I/O error, or there is a `tag` that is no checkpoint of ours, see `remove`.
    """
    with open_directory(temporary) as place:
        identity = place.stat()
        (place / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        fsync_file(place / MANIFEST)
        fsync_directory(place)
    # The run went back to an older checkpoint, or saved this step before.
    replaced = _set_aside(tag, "replaced") if os.path.lexists(tag) else None
    os.replace(temporary, tag)
    fsync_directory(tag.parent)
    with contextlib.suppress(OSError):  # the checkpoint is valid without the pointer
        write_text(tag.parent / LATEST, tag.name + "\n")
    if replaced is not None:
        with contextlib.suppress(OSError):  # otherwise `clean_up_interrupted` deletes it
            discard(replaced)
    return identity if os.path.samestat(identity, tag.lstat()) else None


def prune(
    directory: Path,
    keep: int,
    newest: Path,
    published: Mapping[Path, os.stat_result | None] | None = None,
) -> None:
    """Deletes all checkpoints but `newest`, the `keep` - 1 before it, and the best.

    Checkpoints of later steps than `newest` are deleted first. They were damaged when the run went back to an older
    one, so they must count neither as the newest nor as the best. One that cannot be deleted remains.

    Args:
        published: what `publish` has returned for checkpoints of this process.
    """

    def try_to_remove(tag: Path) -> None:
        with contextlib.suppress(OSError):
            remove(tag, (published or {}).get(tag))

    for tag in tags(directory):
        if step_of(tag) > step_of(newest):
            try_to_remove(tag)
    best = find_best(directory)
    for tag in tags(directory, step_of(newest))[keep:]:
        if tag != best:
            try_to_remove(tag)


def remove(tag: Path, identity: os.stat_result | None = None) -> None:
    """Deletes a checkpoint.

    If the process is killed, it leaves a directory that `clean_up_interrupted` deletes.

    Args:
        identity: what `publish` has returned for it, if this process has written it.
    Raises:
        OSError: I/O error; or nothing is deleted, because a person has added a file to it, has put another directory in
            its place, or as `open_directory`.
    """
    discard(_set_aside(tag, "removed", identity))


def _set_aside(tag: Path, ending: str, identity: os.stat_result | None = None) -> Path:
    """Gives a checkpoint a name that `clean_up_interrupted` knows, and returns it. Raises OSError as `remove`."""
    aside = tag.with_name(f".{tag.name}.{ending}")
    with open_directory(tag, identity) as place:
        if others := foreign_files(place):
            raise OSError(errno.EEXIST, f"it holds a file that is none of a checkpoint's, {others[0]}", str(tag))
    os.replace(tag, aside)
    return aside


def discard(place: Path) -> None:
    """Deletes a checkpoint's files in `place`, and the directory unless it holds other files.

    Raises:
        OSError: I/O error; or nothing is deleted, as `open_directory`.
    """
    with open_directory(place) as opened:
        for path in list(opened.iterdir()):
            if owned.is_own(path, OWN_FILES):
                path.unlink()
    with contextlib.suppress(OSError):  # it holds a person's file
        place.rmdir()


def foreign_files(tag: Path) -> list[str]:
    """The names in a checkpoint's directory that a save never writes there: a person has added them."""
    return sorted(path.name for path in tag.iterdir() if not owned.is_own(path, OWN_FILES))


def check_ours(directory: Path) -> None:
    """Raises UserError if `directory`, a run's `checkpoints`, holds anything that a save has not written.

    Old checkpoints are deleted while a run trains, and no other file may be deleted with them.
    """
    if not os.path.lexists(directory):
        return
    if directory.is_symlink() or not directory.is_dir():
        raise UserError(f"{directory} is not a directory; move it away")
    for path in sorted(directory.iterdir()):
        name = path.name
        if path.is_dir() and not path.is_symlink() and (_NAME.fullmatch(name) or _LEFTOVER.fullmatch(name)):
            others = [f"{name}/{other}" for other in foreign_files(path)]
        else:
            others = [] if owned.is_own(path, _OWN_LATEST) else [name]
        if others:
            raise UserError(f"{directory} holds {others[0]}, which is not part of a checkpoint; move it elsewhere")


def clean_up_interrupted(directory: Path) -> None:
    """Cleans up an interrupted publish or removal; never during a save, and only in one process."""
    if directory.is_symlink():
        return
    for path in list(directory.iterdir()):
        match = _LEFTOVER.fullmatch(path.name)
        if match is None:
            if TEMPORARY.fullmatch(path.name) and owned.is_own(path, _OWN_LATEST):
                path.unlink()
        elif match[2] == "replaced" and not os.path.lexists(directory / match[1]):
            os.replace(path, directory / match[1])
        else:
            with contextlib.suppress(OSError):
                discard(path)
