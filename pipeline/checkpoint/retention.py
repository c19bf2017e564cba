"""The checkpoints of one run: finds the newest and the best, publishes new ones and deletes old ones.

A save that is killed at any moment leaves each checkpoint complete or absent. Directories whose name begins with a dot
are parts of an interrupted save or deletion; `clean_up_interrupted` removes them. Only files with the names that a save
writes are ever deleted. A checkpoint that is a link, or to which a person has added a file, stays.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

from common.files.atomic import sync
from pipeline.checkpoint.checkpoint_manifest import MANIFEST, OWN_FILES, CheckpointManifest, DamagedCheckpoint, check

TAG = re.compile(r"step-(\d{8,})")  # the name of a checkpoint's directory
_LEFTOVER = re.compile(r"\.(step-\d{8,})\.(tmp|replaced|removed)")


def tag_name(step: int) -> str:
    """The name of the checkpoint that is made after `step` steps."""
    return f"step-{step:08d}"


def step_of(tag: Path) -> int:
    """The number of steps before the checkpoint `tag`."""
    return int(tag.name.split("-")[1])


def tags(directory: Path, last: int | None = None) -> list[Path]:
    """The directories with a checkpoint's name, newest first, of at most `last` steps. They may be damaged."""
    if not directory.is_dir():
        return []
    checkpoints = [path for path in directory.iterdir() if TAG.fullmatch(path.name) and path.is_dir()]
    return sorted((tag for tag in checkpoints if last is None or step_of(tag) <= last), key=step_of, reverse=True)


def find_latest(directory: Path, content: bool = False) -> Path | None:
    """The newest complete checkpoint in `directory`; None if there is none.

    content: check the hashes of all files, not only their sizes, and say on stderr which checkpoints are passed over.
    """
    for tag in tags(directory):
        try:
            check(tag, content)
        except DamagedCheckpoint as error:
            if content:
                print(f"note: {tag} is damaged ({error}), so an older checkpoint is read", file=sys.stderr)
        else:
            return tag
    return None


def find_best(directory: Path) -> Path | None:
    """The checkpoint with the best score, the newest of equals; None if none has a score.

    Only scores on the same data as that of the newest one are compared.
    """
    scored: list[tuple[float, str]] = []
    data = None
    for tag in tags(directory):
        with contextlib.suppress(DamagedCheckpoint):
            manifest = CheckpointManifest.read(tag)
            if manifest.score is not None and data in (None, manifest.scored_on):
                data = manifest.scored_on
                scored.append((manifest.score, tag.name))
    return directory / max(scored)[1] if scored else None


def make_temporary(tag: Path) -> None:
    """Makes the directory into which all ranks write the checkpoint `tag`. Raises OSError."""
    # Without `parents`: the run's directory may have been removed while this process trains in it.
    tag.parent.mkdir(exist_ok=True)
    clean_up_interrupted(tag.parent)
    temporary_of(tag).mkdir()


def temporary_of(tag: Path) -> Path:
    """The directory in which the checkpoint `tag` is written."""
    return tag.with_name(f".{tag.name}.tmp")


def publish(tag: Path, manifest: CheckpointManifest) -> None:
    """Turns `temporary_of(tag)`, whose files are complete and synced, into the checkpoint `tag`.

    If the process is killed, the new checkpoint is complete or absent, and the others are unchanged. Raises OSError.
    """
    temporary, replaced = temporary_of(tag), tag.with_name(f".{tag.name}.replaced")
    (temporary / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    sync(temporary / MANIFEST)
    sync(temporary)
    if os.path.lexists(tag):  # it is damaged, and the run went back to an older one
        os.replace(tag, replaced)
    os.replace(temporary, tag)
    sync(tag.parent)
    discard(replaced)


def prune(directory: Path, keep: int, newest: Path) -> None:
    """Deletes all checkpoints but the milestones, the newest `keep` of the others, and the best.

    Checkpoints of later steps than `newest` are deleted first. They were damaged when the run went back to an older
    one, so they must count neither as the newest nor as the best. One that cannot be deleted remains.
    """
    for tag in tags(directory):
        if step_of(tag) > step_of(newest):
            remove(tag)
    best = find_best(directory)
    passing = [tag for tag in tags(directory, step_of(newest)) if not is_milestone(tag)]
    for tag in passing[keep:]:
        if tag != best:
            remove(tag)


def is_milestone(tag: Path) -> bool:
    """Whether a checkpoint is kept for ever (--keep-at)."""
    with contextlib.suppress(DamagedCheckpoint):
        return CheckpointManifest.read(tag).milestone
    return False


def remove(tag: Path) -> None:
    """Deletes a checkpoint, unless it is a link, or holds a file that no save has written, or cannot be deleted.

    If the process is killed, it leaves a directory that `clean_up_interrupted` deletes.
    """
    with contextlib.suppress(OSError):
        if not tag.is_symlink() and not foreign_files(tag):
            discard(tag.replace(tag.with_name(f".{tag.name}.removed")))


def discard(path: Path) -> None:
    """Deletes a checkpoint's files in `path`, and the directory unless it holds others; as far as it can."""
    with contextlib.suppress(OSError):
        if not path.is_symlink():
            for name in set(os.listdir(path)) - set(foreign_files(path)):
                (path / name).unlink()
            path.rmdir()


def foreign_files(tag: Path) -> list[str]:
    """The names in a checkpoint's directory that a save never writes there: a person has added them."""
    return sorted(path.name for path in tag.iterdir() if not OWN_FILES.fullmatch(path.name) or not path.is_file())


def clean_up_interrupted(directory: Path) -> None:
    """Cleans up an interrupted publish or removal; never during a save, and only in one process. Raises OSError."""
    for path in list(directory.iterdir()):
        match = _LEFTOVER.fullmatch(path.name)
        if match is not None and match[2] == "replaced" and not os.path.lexists(directory / match[1]):
            path.replace(directory / match[1])
        elif match is not None:
            discard(path)
