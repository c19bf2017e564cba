"""Rank 0 may open as many files as its connections need, or the job ends with one line before it begins."""

import resource
import sys
from pathlib import Path

import pytest

from pipeline.distributed import descriptors
from pipeline.distributed.hosts.comparison import problems_of_rank_0
from pipeline.distributed.hosts.query import Answer
from tests.pipeline.conftest import run
from tests.pipeline.workers import processes
from tests.pipeline.workers.cases.descriptor import count_open_files

LIMITS = """
import resource
from common.errors import UserError
from pipeline.distributed import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 2000))
for ranks in (8, 100, 1000):
    descriptors.raise_limit(ranks)
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
descriptors.check_limit(100)
try:
    descriptors.check_limit(1000)
except UserError as error:
    print(error)
"""


@pytest.mark.slow
def test_rank_0_holds_no_more_than_assumed(tmp_path: Path) -> None:
    two, four = (processes.run(world, count_open_files, scratch=tmp_path) for world in (2, 4))
    assert 0 < (four - two) / 2 <= descriptors.PER_RANK
    assert two < descriptors.OWN


def test_the_soft_limit_is_raised_as_far_as_needed() -> None:
    lines = run(sys.executable, "-c", LIMITS).stdout.splitlines()
    assert lines[:3] == ["(320, 2000)", "(1056, 2000)", "(2000, 2000)"]
    assert lines[3].startswith("rank 0 needs 8,256 open files for 1,000 ranks, and its host allows 2,000; raise")


def test_a_limit_that_is_too_low_ends_the_command(tmp_path: Path) -> None:
    words = "-m pipeline.pretrain --model albert-tiny --deepspeed_config ds_configs/tiny.json --data none --output"
    command = f'ulimit -n 200; exec "{sys.executable}" {words} "{tmp_path / "run"}"'
    ended = run("sh", "-c", command, status=2)
    assert ended.stderr.startswith("error: rank 0 needs 264 open files for 1 rank, and its host allows 200; raise")


def test_the_preflight_checks_the_hard_limit_of_the_first_host() -> None:
    def lines(limit: int, ranks: int) -> list[str]:
        return problems_of_rank_0("node1", Answer({"open_files": limit}, "", 0.0, 0.0), ranks)

    assert lines(1024, 96) == lines(resource.RLIM_INFINITY, 10**6) == []
    (line,) = lines(1024, 97)
    assert line.startswith("node1: rank 0 needs 1,032 open files for 97 ranks, and its host allows 1,024; raise")
    assert problems_of_rank_0("node1", Answer({}, "cannot be reached", 0.0, 0.0), 97) == []
