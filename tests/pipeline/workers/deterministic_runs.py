"""Pre-training in two ranks with deterministic algorithms."""

import os
from pathlib import Path
from typing import Any

import torch

from pipeline.engine import hardware
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
