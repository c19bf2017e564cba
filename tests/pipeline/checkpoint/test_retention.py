"""Which checkpoints remain."""

from pipeline.checkpoint.retention import clean_up_interrupted, find_best, prune, tag_name, tags
from tests.pipeline.checkpoint.test_files import flip, make


def test_pruning_keeps_the_last_and_the_best(tmp_path):
    for step, score in [(1, 0.1), (2, 0.9), (3, 0.9), (4, None), (5, 0.2), (6, None)]:
        make(tmp_path, step, score)
    newest = tmp_path / tag_name(6)
    prune(tmp_path, 2, newest)
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["6", "5", "3"]
    prune(tmp_path, 1, newest)
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["6", "3"]


def test_scores_on_other_data_are_not_compared(tmp_path):
    for step, (score, data) in enumerate([(0.9, "a"), (0.8, "a"), (0.2, "b"), (0.3, "b"), (0.1, "b")], 1):
        make(tmp_path, step, score, scored_on=data)
    assert find_best(tmp_path) == tmp_path / tag_name(4)
    make(tmp_path, 6, 0.5, scored_on="a")  # the first data again
    assert find_best(tmp_path) == tmp_path / tag_name(1)


def test_milestones_remain_beside_the_newest(tmp_path):
    for step in range(1, 8):
        make(tmp_path, step, milestone=step in (2, 4, 7))
    prune(tmp_path, 2, tmp_path / tag_name(7))
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["7", "6", "5", "4", "2"]


def test_after_a_fallback_what_was_damaged_is_neither_the_newest_nor_the_best(tmp_path):
    make(tmp_path, 2, score=0.5)
    flip(make(tmp_path, 6, score=0.9) / "rank-00000.safetensors", -1)
    prune(tmp_path, 1, make(tmp_path, 3))
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["3", "2"]


def test_the_newest_remains_though_a_later_one_cannot_be_deleted(tmp_path):
    """A person has added a file to a checkpoint that was damaged."""
    make(tmp_path, 2, score=0.5)
    (make(tmp_path, 6) / "notes.txt").write_text("mine")
    prune(tmp_path, 1, make(tmp_path, 3))
    assert [tag.name[-1] for tag in tags(tmp_path)] == ["6", "3", "2"]


def test_what_a_kill_leaves_while_safetensors_writes_is_deleted(tmp_path):
    make(tmp_path, 5)
    left = tmp_path / f".{tag_name(10)}.tmp"
    left.mkdir()
    (left / ".tmpMaIXov").write_bytes(b"half of a file")  # as the library calls what it has not renamed yet
    clean_up_interrupted(tmp_path)
    assert not left.exists()


def test_a_checkpoint_that_was_moved_and_linked_stays_where_it_is(tmp_path):
    run, archive = tmp_path / "checkpoints", tmp_path / "archive"
    for step in range(1, 6):
        make(run, step)
    archive.mkdir()
    (run / tag_name(2)).rename(archive / tag_name(2))
    (run / tag_name(2)).symlink_to(archive / tag_name(2))
    there = sorted(archive.rglob("*"))
    prune(run, 1, run / tag_name(5))
    assert [tag.name[-1] for tag in tags(run)] == ["5", "2"], "the others are deleted all the same"
    make(run, 2)  # which takes the place of the link
    assert not (run / tag_name(2)).is_symlink()
    for ending in ("tmp", "replaced", "removed"):
        left = run / f".{tag_name(2)}.{ending}"
        if not left.exists():
            left.symlink_to(archive / tag_name(2))
    clean_up_interrupted(run)
    assert sorted(archive.rglob("*")) == there
