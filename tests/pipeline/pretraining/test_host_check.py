"""Each host checks every byte of the shards before training."""

import shutil
from pathlib import Path

import pytest

from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import run_one

SHARD = "shard-00000.arrow"


def flip_a_bit(path: Path) -> None:
    """Changes one bit in the middle of a file, not its size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_damage_ends_the_run_with_one_line(corpus, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(corpus.train, damaged)
    flip_a_bit(damaged / SHARD)
    words = Run("run", 1, 6).command(corpus, tmp_path)
    command = [str(damaged) if word == str(corpus.train) else word for word in words]
    ended = processes.run(1, run_one, command, scratch=tmp_path)
    assert (ended.status, ended.stderr.count("\n")) == (2, 1)
    assert f"{damaged} is damaged: the content of {SHARD} has changed" in ended.stderr
