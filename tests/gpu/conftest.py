"""The device of a test: the processor, and the GPU with the marker `gpu`; and runs of `pipeline.pretrain` on it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.shared.job import Job
from tests.pipeline.conftest import corpus  # noqa: F401
from tests.pipeline.test_pretrain import Job as ForkedJob
from tests.pipeline.workers import killed_runs

MARKS = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")]
"""Of a test on a GPU."""


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=MARKS)])
def device(request):
    """Each test runs on both; on the processor with small sizes."""
    return torch.device(request.param)


def job_of(
    device: str, data: SimpleNamespace, folder: Path, precision: str, steps: int, more: dict[str, object]
) -> Job:
    """A job of one rank, with `more` entries of the DeepSpeed JSON. On the processor its ranks are forked."""
    folder.mkdir()
    words = killed_runs.flags(data.train, data.held_out, precision, steps, folder)
    (folder / "config.json").write_text(json.dumps(killed_runs.CONFIG | more))
    kind = Job if device == "cuda" else ForkedJob
    return kind([*words, "--attention", "masked"], folder / "run", 1, device)


def zero(stage: int) -> dict[str, object]:
    return {"zero_optimization": killed_runs.CONFIG["zero_optimization"] | {"stage": stage}}
