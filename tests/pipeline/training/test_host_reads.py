"""Between two logged lines the host does not wait for the device, except where DeepSpeed itself reads a value.

A processor shows what would wait on a GPU: the calls are the same, only their cost is not.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import deepspeed
import pytest
import torch
from deepspeed.accelerator import get_accelerator

import pipeline
from pipeline.distributed.progress import Phase
from pipeline.training.training_run import Callback, TrainingRun
from tests.model.examples import Synchronisations
from tests.pipeline.training.loop_runs import STEPS, Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import run_watched
from tests.pipeline.workers.training import claim_fp16

pytestmark = pytest.mark.slow

PACKAGES = tuple(str(Path(package.__file__ or "").parent) + os.sep for package in (deepspeed, pipeline))


def count_waits(commands: list[list[str]]) -> list[tuple[list[Counter[str]], int]]:
    """What made the host wait in each run of pipeline.pretrain.

    For each step, how often each function read a value of a tensor, without logging, evaluating and saving; and the
    calls of the accelerator's `synchronize` until training has ended.
    """
    claim_fp16()
    return [_count(command) for command in commands]


class _Counting(Callback):
    """Counts from the first forward pass of a step to its end."""

    def __init__(self) -> None:
        self.steps: list[Counter[str]] = []
        self._counting = ExitStack()

    def enter(self, run: TrainingRun, phase: Phase, micro_step: int = 0) -> None:
        if phase == "forward" and micro_step == 1:
            self.steps.append(Counter())
            self._counting.enter_context(counting_reads(self.steps[-1]))

    def on_step(self, step: int) -> None:
        self._counting.close()

    def on_end(self) -> None:
        self.synchronisations = get_accelerator().synchronize.call_count  # before the engine is destroyed


def _count(command: list[str]) -> tuple[list[Counter[str]], int]:
    counting = _Counting()
    with mock.patch.object(get_accelerator(), "synchronize"):
        run_watched(command, counting)
    return counting.steps, counting.synchronisations


@contextmanager
def counting_reads(reads: Counter[str]) -> Iterator[None]:
    """Counts in `reads` the values that each function reads in the block."""
    as_list = torch.Tensor.tolist

    def note(_: object) -> None:
        reads[_asker()] += 1

    def tolist(tensor: torch.Tensor) -> Any:
        note(tensor)
        return as_list(tensor)

    with Synchronisations(note), mock.patch.object(torch.Tensor, "tolist", tolist):
        yield


def _asker() -> str:
    """The innermost function of DeepSpeed or of the project on the stack, as "file.py: function"."""
    frame = sys._getframe(1)
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if path.startswith(PACKAGES):
            package = next(package for package in PACKAGES if path.startswith(package))
            return f"{Path(package).name}/{path.removeprefix(package)}: {name}"
        frame = frame.f_back
    return "unknown"


CLIPPED = (("gradient_clipping", 1.0),)
FP16 = (*CLIPPED, ("fp16", {"enabled": True, "initial_scale_power": 8}))
LONG = 6
ONCE = tuple(
    word for name in ("steps", "log-interval", "eval-interval", "save-interval") for word in (f"--{name}", str(LONG))
)
STAGES = [
    Run(f"{precision} at stage {stage}", 1, 6, stage, FP16 if precision == "fp16" else CLIPPED, ONCE, precision)
    for stage, precision in ((1, "fp16"), (3, "bf16"))
]
WHOLE, IN_SIX = (Run(f"reading {micro}", 1, micro) for micro in (12, 2))

TRACED = 3  # stage 3 learns the order of the layers in the first steps, and compares it between the ranks


def test_only_deepspeed_s_checks_of_a_step_read_values_and_nothing_synchronises_the_device(corpus, tmp_path):
    runs = [*STAGES, WHOLE, IN_SIX]
    waits = processes.run(1, count_waits, [run.command(corpus, tmp_path) for run in runs], scratch=tmp_path)
    assert [synchronisations for _, synchronisations in waits] == [0] * len(runs)
    for run, (steps, _) in zip(STAGES, waits):
        assert len(steps) == LONG
        for step, reads in enumerate(steps[TRACED if run.stage == 3 else 0 :]):
            # LAMB's first update is compared with a plain one.
            allowed = ("deepspeed/", *(("pipeline/engine/zero_layout.py",) if step == 0 else ()))
            assert all(name.startswith(allowed) for name in reads), (run.name, step, reads)
    # The number of values that a step reads from the device does not grow with its micro-steps.
    (whole, _), (in_six, _) = waits[len(STAGES) :]
    assert len(whole) == STEPS
    assert in_six == whole
