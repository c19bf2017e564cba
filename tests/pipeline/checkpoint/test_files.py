"""The files of a checkpoint: damage is found, a kill leaves a whole one, any elements are read; and which remain."""

import errno
import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import save_file

from common.errors import UserError
from common.files.checksums import FileEntry, content_checksum, describe_file
from pipeline.checkpoint.checkpoint_manifest import MANIFEST, CheckpointManifest, DamagedCheckpoint, StoredTensor, check
from pipeline.checkpoint.files import load_weights, piece_key
from pipeline.checkpoint.retention import clean_up_interrupted, find_best, find_latest, prune, publish, tag_name, tags


def prepare(directory: Path, step: int, score: float | None = None) -> tuple[Path, Path, CheckpointManifest]:
    """All of a checkpoint but its manifest: tensor "w" of 10 elements in two files, its element i being step + i."""
    temporary, tag = directory / f".{tag_name(step)}.tmp", directory / tag_name(step)
    temporary.mkdir(parents=True)
    whole = torch.arange(10.0) + step
    for number, (start, length) in enumerate([(0, 7), (7, 3)]):
        pieces = {
            piece_key(kind, "w", start): sign * whole[start : start + length]
            for kind, sign in (("weight", 1), ("exp_avg", -1), ("exp_avg_sq", 2))
        }
        save_file(pieces, temporary / f"rank-{number:05d}.safetensors")
    (temporary / "state.json").write_text(json.dumps({"step": step}))
    files = list(map(describe_file, temporary.iterdir()))
    where = (("rank-00000.safetensors", 0, 7), ("rank-00001.safetensors", 7, 3))
    return temporary, tag, CheckpointManifest(step, score, {"w": StoredTensor((2, 5), 0, where)}, files)


def make(directory: Path, step: int, score: float | None = None, **fields: Any) -> Path:
    _, tag, manifest = prepare(directory, step, score)
    publish(tag, replace(manifest, **fields))
    return tag


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["rank-00000.safetensors", "rank-00001.safetensors", "state.json", "manifest.json"])
def test_any_flipped_bit_is_found(tmp_path, name):
    tag = make(tmp_path, 1)
    size = (tag / name).stat().st_size
    for position in random.Random(0).sample(range(size), min(size, 20)):
        flip(tag / name, position)
        with pytest.raises(DamagedCheckpoint, match=name):
            check(tag)
        flip(tag / name, position)
    check(tag)


def test_a_file_that_the_disk_does_not_give_and_another_format_are_damage(tmp_path, monkeypatch):
    tag = make(tmp_path, 1)
    record = json.loads((tag / MANIFEST).read_text())
    record["content"]["format"] = 2
    record["xxh3_128"] = content_checksum(record["content"])
    (tag / MANIFEST).write_text(json.dumps(record))
    with pytest.raises(DamagedCheckpoint, match="format 2, not 1"):
        CheckpointManifest.read(tag)
    monkeypatch.setattr(FileEntry, "is_in", mock.Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(DamagedCheckpoint, match="Input/output error"):
        check(make(tmp_path, 2))


@pytest.mark.parametrize("name", ["rank-00001.safetensors", "state.json", "manifest.json"])
def test_a_short_or_missing_file_is_found_without_reading_all(tmp_path, name):
    make(tmp_path, 1)
    tag = make(tmp_path, 2)
    assert find_latest(tmp_path) == tag
    os.truncate(tag / name, (tag / name).stat().st_size - 2)
    assert find_latest(tmp_path) == tmp_path / "step-00000001"
    (tag / name).unlink()
    assert find_latest(tmp_path) == tmp_path / "step-00000001"


def test_a_directory_without_a_manifest_is_no_checkpoint(tmp_path):
    assert find_latest(tmp_path / "nowhere") is None
    prepare(tmp_path, 5)
    (tmp_path / "step-00000009").mkdir()
    (tmp_path / "step-00000007").write_text("a file")
    assert find_latest(tmp_path) is None
    make(tmp_path, 100_000_000)
    make(tmp_path, 99)
    assert find_latest(tmp_path) == tmp_path / "step-100000000"


def test_weights_of_a_checkpoint_or_of_the_newest_one(tmp_path):
    first, second = make(tmp_path, 1), make(tmp_path, 2)
    wanted = (torch.arange(10.0) + 1).view(2, 5)
    assert torch.equal(load_weights(first)["w"], wanted)
    assert torch.equal(load_weights(tmp_path)["w"], wanted + 1)
    flip(second / "rank-00000.safetensors", -1)
    assert torch.equal(load_weights(tmp_path)["w"], wanted)
    with pytest.raises(UserError, match=r"step-00000002 is damaged \(the content of rank-00000.safetensors"):
        load_weights(second)
    with pytest.raises(UserError, match="holds no complete checkpoint"):
        load_weights(tmp_path / "nowhere")


def killed_at(call: int, work: Callable[[], None]) -> bool:
    """Runs `work` in a child that is killed at its call number `call` to the file system; whether it was."""
    child = os.fork()
    if child == 0:
        calls = 0

        def killing(function: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*arguments: Any, **settings: Any) -> Any:
                nonlocal calls
                if calls == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                calls += 1
                return function(*arguments, **settings)

            return wrapper

        for name in ("replace", "fsync", "open", "unlink", "rmdir"):
            setattr(os, name, killing(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_killed_at_any_moment_there_is_always_a_whole_checkpoint(tmp_path):
    """A step that is there already is saved again, and the older checkpoint is deleted."""
    survived = 0
    for call in range(100):
        directory = tmp_path / str(call)
        make(directory, 1)
        make(directory, 2)
        prepared = prepare(directory, 2)

        def save(directory=directory, prepared=prepared):
            publish(*prepared[1:])
            prune(directory, 1, prepared[1])

        if not killed_at(call, save):
            break
        survived += 1
        clean_up_interrupted(directory)
        names = sorted(path.name for path in directory.iterdir())
        assert names in (["step-00000001", "step-00000002"], ["step-00000002"])
        for name in names:
            check(directory / name)
    assert survived > 5
    assert sorted(os.listdir(directory)) == ["step-00000002"]


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
