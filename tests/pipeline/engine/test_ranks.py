"""Too little memory that may be mapped: one line before the start."""

import os
import re
import resource
import subprocess
import sys

import pytest

from tests.pipeline.conftest import REPOSITORY


@pytest.mark.parametrize("gigabytes", [0.7, 1.6])
def test_a_limit_below_what_a_rank_maps_is_a_line_before_a_library_is_loaded(gigabytes: float) -> None:
    limit = int(gigabytes * 1e9)
    ended = subprocess.run(
        [sys.executable, "-m", "pipeline.pretrain", "--output", "/nowhere"],
        env={**os.environ, "RANK": "0", "LOCAL_RANK": "0"}, cwd=REPOSITORY, capture_output=True, text=True,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert ended.returncode == 2
    assert re.fullmatch(
        r"error: this process may map \d\.\d GB more of memory, and a rank needs at least 1\.7 GB; .*\n", ended.stderr
    )
