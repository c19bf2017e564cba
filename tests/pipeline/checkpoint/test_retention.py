"""Which checkpoints remain."""

import os
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import locks
from pipeline.checkpoint.retention import (
    check_ours,
    clean_up_interrupted,
    make_temporary,
    prune,
    remove,
    tag_name,
    tags,
)
from tests.pipeline.checkpoint.test_files import flip, make, prepare, publish


def test_pruning_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    for step, score in [(1, 0.1), (2, 0.9), (3, 0.9), (4, None), (5, 0.2), (6, None)]:
        make(tmp_path, step, score)
    newest = tmp_path / tag_name(6)
    prune(tmp_path, 2, newest)
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["6", "5", "3"]
    prune(tmp_path, 1, newest)
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["6", "3"]


def test_after_a_fallback_what_was_damaged_is_neither_the_newest_nor_the_best(tmp_path: Path) -> None:
    make(tmp_path, 2, score=0.5)
    flip(make(tmp_path, 6, score=0.9) / "rank-00000.safetensors", -1)
    prune(tmp_path, 1, make(tmp_path, 3))
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["3", "2"]


def test_the_newest_remains_though_a_later_one_cannot_be_deleted(tmp_path: Path) -> None:
    """A person has added a file to a checkpoint that was damaged."""
    make(tmp_path, 2, score=0.5)
    (make(tmp_path, 6) / "notes.txt").write_text("mine")
    prune(tmp_path, 1, make(tmp_path, 3))
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["6", "3", "2"]


def test_what_a_kill_leaves_while_safetensors_writes_is_deleted(tmp_path: Path) -> None:
    make(tmp_path, 5)
    left = tmp_path / f".{tag_name(10)}.tmp"
    left.mkdir()
    (left / ".tmpMaIXov").write_bytes(b"half of a file")  # as the library calls what it has not renamed yet
    check_ours(tmp_path)
    clean_up_interrupted(tmp_path)
    assert not left.exists()


def move_and_link(path: Path, archive: Path) -> list[Path]:
    """Moves a directory into the archive and leaves a link. Returns the files that are in the archive."""
    archive.mkdir(exist_ok=True)
    path.rename(archive / path.name)
    path.symlink_to(archive / path.name)
    return sorted(archive.rglob("*"))


def test_a_checkpoint_that_was_moved_and_linked_stays_where_it_is(tmp_path: Path) -> None:
    run, archive = tmp_path / "checkpoints", tmp_path / "archive"
    for step in range(1, 6):
        make(run, step)
    there = move_and_link(run / tag_name(2), archive)
    prune(run, 1, run / tag_name(5))
    assert [tag.name[-1] for tag in tags(run)] == ["5", "2"], "the others are deleted all the same"
    with pytest.raises(OSError, match="Not a directory"):
        remove(run / tag_name(2))
    with pytest.raises(OSError, match="Not a directory"):
        make(run, 2)
    for ending in ("tmp", "replaced", "removed"):
        left = run / f".{tag_name(2)}.{ending}"
        if not left.exists():
            left.symlink_to(archive / tag_name(2))
    clean_up_interrupted(run)
    assert sorted(archive.rglob("*")) == there


def test_nothing_is_deleted_in_a_directory_of_checkpoints_that_was_moved_and_linked(tmp_path: Path) -> None:
    run = tmp_path / "checkpoints"
    for step in range(1, 4):
        make(run, step)
    again = prepare(run, 3)
    there = move_and_link(run, tmp_path / "archive")
    prune(run, 1, run / tag_name(3))
    with pytest.raises(OSError, match="Not a directory"):
        publish(*again)
    with pytest.raises(OSError, match=f"it is a link: '{run}'"):
        make_temporary(run / tag_name(4))
    assert sorted((tmp_path / "archive").rglob("*")) == there


def test_a_directory_that_this_process_has_not_written_is_not_deleted(tmp_path: Path) -> None:
    """Another run's checkpoint was moved to the name of one of this run."""
    published = {}
    for step in range(1, 5):
        temporary, tag, manifest = prepare(tmp_path, step)
        published[tag] = publish(temporary, tag, manifest)
    (tmp_path / tag_name(2)).rename(tmp_path / "kept")
    make(tmp_path / "other", 2).rename(tmp_path / tag_name(2))
    prune(tmp_path, 1, tag, published)
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["4", "2"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_checkpoint_of_another_user_is_not_deleted(tmp_path: Path) -> None:
    tag = make(tmp_path, 1)
    os.chown(tag, 12345, -1)
    with pytest.raises(OSError, match=f"it is another user's: '{tag}'"):
        remove(tag)
    assert (tag / "manifest.json").exists()
    os.chown(tmp_path, 12345, -1)  # one who resumes another user's run deletes what that user saved there
    remove(tag)


def test_nothing_is_saved_in_a_run_that_was_moved(tmp_path: Path) -> None:
    with locks.holding(tmp_path / "run" / locks.LOCK, tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "moved")
        with pytest.raises(UserError, match="was moved or replaced while this command worked in it"):
            make_temporary(tmp_path / "run" / "checkpoints" / tag_name(1))
    assert not (tmp_path / "run").exists()
