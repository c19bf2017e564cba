"""How a run under `deepspeed` ends after a kill of the `deepspeed` command alone."""

import os
import subprocess
import time

import psutil
import pytest

from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.test_pretrain import command, config, ranks_of

pytestmark = pytest.mark.slow

__all__ = ["config"]


def test_a_kill_of_the_launcher_alone_stops_and_saves(corpus, config, tmp_path):
    output = tmp_path / "run"
    words = command(corpus, config, output, "--steps", "100000", "--warmup-steps", "10", "--save-interval", "100000")
    words[words.index("--eval-interval") + 1] = "100000"
    said = tmp_path / "said"
    with said.open("w") as file:
        launcher = subprocess.Popen(
            words, cwd=REPOSITORY, env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while "/100000  loss" not in said.read_text():
            assert launcher.poll() is None, said.read_text()
            time.sleep(0.05)
        ranks = ranks_of(launcher)
        launcher.terminate()
        launcher.wait()
        _gone, alive = psutil.wait_procs(ranks, timeout=300)
    assert not alive
    text = said.read_text()
    assert f"the launcher (deepspeed, process {launcher.pid}) has ended, so this run stops" in text
    assert "stopped by SIGTERM and saved at step" in text
    assert "Traceback" not in text
    assert list((output / "checkpoints").glob("step-*"))
