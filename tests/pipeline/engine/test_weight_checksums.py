"""The ranks compare their weights at each save."""

import socket
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoint.retention import tags
from pipeline.distributed.exits import EXIT_LOST
from pipeline.engine.weight_checksums import differing_ranks
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.flipped_bits import run_flipped


@pytest.mark.parametrize(
    ("checksums", "ranks"),
    [(["a"], []), (["a", "a"], []), (["a", "b"], [0, 1]), (["a", "b", "a"], [1]), (["a", "b", "c", "b", "b"], [0, 2])],
)
def test_the_majority_is_right(checksums: list[str], ranks: list[int]) -> None:
    assert differing_ranks(checksums) == ranks


@pytest.mark.slow
def test_a_flipped_bit_on_one_rank_of_two_ends_the_run_at_the_save(corpus: Any, tmp_path: Path) -> None:
    flags = ("--steps", "6", "--log-interval", "1", "--eval-interval", "100")
    runs = [Run(f"at stage {stage}", 2, 3, stage, flags=flags, precision="bf16") for stage in (0, 2)]
    commands = [run.command(corpus, tmp_path) for run in runs]
    host = socket.gethostname()
    for run, end in zip(runs, processes.run(2, run_flipped, commands, 4, scratch=tmp_path), strict=True):
        assert end.status == EXIT_LOST
        assert end.stderr.startswith(f"error: rank 0 on host {host} or rank 1 on host {host} holds wrong weights after")
        assert [tag.name for tag in tags(tmp_path / run.name / "checkpoints")] == ["step-00000002"]
