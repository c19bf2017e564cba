"""Which checkpoints remain."""

from pathlib import Path

from pipeline.checkpoint.retention import check_ours, clean_up_interrupted, go_back, prune, tag_name, tags
from tests.pipeline.checkpoint.test_checkpoints import flip, make


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


def test_the_checkpoint_that_remains_for_a_rollback_is_a_whole_one(tmp_path: Path) -> None:
    for step in range(1, 7):
        make(tmp_path, step)
    flip(tmp_path / tag_name(4) / "rank-00000.safetensors", -1)
    prune(tmp_path, 2, tmp_path / tag_name(6), undo_step=4)
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["6", "5", "3"]
    assert go_back(tmp_path, 4)
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["3"]


def test_what_a_kill_leaves_while_safetensors_writes_is_deleted(tmp_path: Path) -> None:
    make(tmp_path, 5)
    left = tmp_path / f".{tag_name(10)}.tmp"
    left.mkdir()
    (left / ".tmpMaIXov").write_bytes(b"half of a file")  # as the library calls what it has not renamed yet
    check_ours(tmp_path)
    clean_up_interrupted(tmp_path)
    assert not left.exists()
