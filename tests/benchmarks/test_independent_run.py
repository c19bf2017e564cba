"""This system and an independent implementation compute the same training; in short here, in full by the command.

The ranks that the command's launcher would start are forked.
"""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.study import independent_run
from benchmarks.study.independent_run import RANKS, TOLERANCE, Outcome
from tests.pipeline.test_pretrain import Job, of_module

pytestmark = pytest.mark.slow

STEPS = 30


@pytest.fixture(scope="module")
def outcome(corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("independent")

    def launch(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        flags = of_module(words)[1:]
        Job(flags, Path(flags[flags.index("--output") + 1]), RANKS).finish()
        return subprocess.CompletedProcess(words, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(independent_run, "subprocess", SimpleNamespace(run=launch))
        return independent_run.compare(corpus.train, corpus.held_out, STEPS, "fp32", folder)


def test_every_step_has_the_same_losses(outcome: Outcome) -> None:
    assert len(outcome.losses) == len(outcome.reference) == STEPS
    assert outcome.close < TOLERANCE


def test_the_models_learned_and_end_equal(outcome: Outcome) -> None:
    mlm = [loss for loss, _ in outcome.reference]
    assert sum(mlm[-5:]) < sum(mlm[:5]) - 1.0  # otherwise equal losses would say little
    mean, half = outcome.held_out
    assert abs(mean) < max(half, TOLERANCE)


def test_the_page_has_the_figures(outcome: Outcome, tmp_path: Path) -> None:
    page = independent_run.markdown(outcome)
    assert f"| largest difference of a loss in the first {STEPS} steps | {outcome.close:.1e} |" in page
