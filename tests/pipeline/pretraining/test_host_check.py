"""Each host checks every byte of the shards, and training compares each row that it reads."""

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from data_prep.format.shard_manifest import read_manifest
from data_prep.format.shards import map_shard
from pipeline.pretraining import pretraining_recipe
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import Ended, run_one

SHARD = "shard-00000.arrow"


def flip_a_bit(path: Path) -> None:
    """Changes one bit in the middle of a file, not its size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def train(commands: list[list[str]], changed: Path) -> list[Ended]:
    """Runs the command lines. The tokens of the shard `changed` change after the check at the start."""
    check = pretraining_recipe.check_on_hosts

    def check_and_change(*arguments: Any, **settings: Any) -> Any:
        checked = check(*arguments, **settings)
        if changed.parent in checked:
            tokens = map_shard(changed, read_manifest(changed.parent).shards()[0].rows).tokens.tobytes()
            other = (np.frombuffer(tokens, np.uint16) ^ 1).tobytes()  # tokens that the vocabulary has as well
            changed.write_bytes(changed.read_bytes().replace(tokens, other))
        return checked

    with mock.patch.object(pretraining_recipe, "check_on_hosts", check_and_change):
        return [run_one(command) for command in commands]


@pytest.mark.slow
def test_damage_before_and_during_training_ends_the_run_with_one_line(corpus: Any, tmp_path: Path) -> None:
    damaged, changed = tmp_path / "damaged", tmp_path / "changed"
    commands = []
    for directory in (damaged, changed):
        shutil.copytree(corpus.train, directory)
        words = Run(f"run on {directory.name}", 1, 6).command(corpus, tmp_path)
        commands.append([str(directory) if word == str(corpus.train) else word for word in words])
    flip_a_bit(damaged / SHARD)
    before, during = processes.run(1, train, commands, changed / SHARD, scratch=tmp_path)
    assert (before.status, before.stderr.count("\n")) == (2, 1)
    assert f"{damaged} is damaged: the content of {SHARD} has changed" in before.stderr
    assert (during.status, during.stderr.count("\n")) == (2, 1)
    assert f"{changed / SHARD} has changed since it was checked at the start: the 16 rows that" in during.stderr
