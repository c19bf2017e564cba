"""The way from a command to the engine, and what a run trains."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.retention import tag_name
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.observed_runs import run_and_look


@pytest.mark.slow
def test_six_calls_lead_to_the_engine_and_init_gives_the_first_weights(corpus: Any, tmp_path: Path) -> None:
    """`run_and_exit` and the module come before the four functions here. A run that may go back saves step 0."""
    first = Run("first", 1, 12)
    started = Run("started", 1, 12, flags=("--on-divergence", "rollback", "--seed", "7", "--keep-checkpoints", "20"))
    command = started.command(corpus, tmp_path)
    ends, frames = processes.run(
        1, run_and_look, [first.command(corpus, tmp_path), [*command, "--init", str(tmp_path / "first")]],
        scratch=tmp_path,
    )  # fmt: skip
    assert [ended.status for ended in ends] == [0, 0], ends
    assert frames == ["launch.run_command", "command.run", "lifecycle.train", "trainer.train", "callback.tell"]
    given = load_weights(tmp_path / "first" / "checkpoints" / tag_name(10))
    begun = load_weights(tmp_path / "started" / "checkpoints" / tag_name(0))
    assert given.keys() == begun.keys()
    assert all(torch.equal(begun[name], given[name]) for name in given)
    trained = load_weights(tmp_path / "started" / "checkpoints" / tag_name(10))
    assert not all(torch.equal(trained[name], given[name]) for name in given)
