"""--deterministic: the same bits with a stop in between."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.distributed.exits import EXIT_STOPPED
from pipeline.engine import hardware
from tests.pipeline.outcome import differences
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import Ended, run_each


def train(command: list[str], folder: Path, stop: int) -> tuple[list[Ended], dict[str, Any]]:
    """Runs one command line with --deterministic to its end in `folder`/straight, and in two starts in `folder`/twice.

    Returns what became of the three starts, and torch's switches.
    """
    runs = {name: [*command, "--deterministic", "--output", str(folder / name)] for name in ("straight", "twice")}
    ended = run_each([(runs["straight"], None), (runs["twice"], stop), (runs["twice"], None)])
    return ended, {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "only a warning": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        "environment": {name: os.environ.get(name) for name in hardware.DETERMINISTIC_ENVIRONMENT},
    }


@pytest.mark.slow
def test_deterministic_training_gives_the_same_bits_again(corpus, tmp_path):
    words = Run("run", stage=3, flags=("attention_probs_dropout_prob=0.1",)).command(corpus, tmp_path)
    ended, switches = processes.run(2, train, words, tmp_path, 4, scratch=tmp_path)
    assert [end.status for end in ended] == [0, EXIT_STOPPED, 0], ended
    assert all("deterministic algorithms" in end.stdout for end in ended)
    assert differences(tmp_path / "twice", tmp_path / "straight") == []
    assert json.loads((tmp_path / "twice" / "settings.json").read_text())["flags"]["deterministic"] is True
    assert switches == {
        "algorithms": True,
        "only a warning": False,
        "cudnn": (True, False),
        "environment": hardware.DETERMINISTIC_ENVIRONMENT,
    }
