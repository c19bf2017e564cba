"""A rank of a real run that is stopped, under `deepspeed`."""

import os
import re
import signal
import subprocess

import pytest

from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.test_pretrain import await_step, command, config, ranks_of

pytestmark = pytest.mark.slow

__all__ = ["config"]


def test_a_stopped_rank_is_named_and_ends_the_job(corpus, config, tmp_path):
    output = tmp_path / "run"
    words = command(corpus, config, output, "--steps", "100000", "--warmup-steps", "10", "--hang-timeout", "10")
    with subprocess.Popen(
        words, cwd=REPOSITORY, env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as launcher:  # fmt: skip
        try:
            await_step(launcher, output, 5)
            (victim,) = (rank for rank in ranks_of(launcher) if rank.environ()["RANK"] == "1")
            victim.send_signal(signal.SIGSTOP)
            _, errors = launcher.communicate(timeout=300)
        finally:
            launcher.kill()  # where it has not ended, its ranks end with it
    assert launcher.returncode == 69
    line = rf"error: rank 1 on host {os.uname().nodename} hangs: no progress for \d+ s in phase \w+ of step \d+"
    assert re.search(line, errors), errors
    assert "its process is stopped" in errors
    assert "Traceback" not in errors
    (stacks,) = (output / "hangs").iterdir()
    for rank in range(2):
        assert "pipeline/training/trainer.py" in (stacks / f"rank-{rank:05d}.txt").read_text()
