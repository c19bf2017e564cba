"""Runs of `pipeline.pretrain` on two ranks with a device each: ZeRO-3, an overflow on one rank, a killed rank."""

import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from deepspeed.accelerator import get_accelerator

from benchmarks.shared.job import Job
from pipeline.checkpoint.retention import find_latest
from pipeline.distributed.exits import EXIT_LOST
from pipeline.training.metrics_file import read_records
from tests.pipeline.conftest import corpus  # noqa: F401
from tests.pipeline.workers import killed_runs

pytestmark = pytest.mark.slow
STEPS, HOST_SECONDS = 8, 10
FP16 = {"enabled": True, "initial_scale_power": 4, "hysteresis": 1, "loss_scale_window": 1000}


@pytest.fixture(autouse=True)
def two_devices(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")


def make_job(
    device: torch.device, corpus: SimpleNamespace, folder: Path, precision: str, **more: object  # noqa: F811
) -> Job:  # fmt: skip
    folder.mkdir()
    words = killed_runs.flags(corpus.train, corpus.held_out, precision, STEPS, folder)
    (folder / "config.json").write_text(json.dumps(killed_runs.CONFIG | more))
    words += ["--log-interval", "1", "--host-timeout", str(HOST_SECONDS), "--attention", "masked"]
    return Job(words, folder / "run", 2, device.type)


def test_every_zero_stage_trains_alike(device: torch.device, corpus: SimpleNamespace, tmp_path: Path) -> None:  # noqa: F811
    losses = {}
    for stage in (1, 2, 3):
        zero = killed_runs.CONFIG["zero_optimization"] | {"stage": stage}
        job = make_job(device, corpus, tmp_path / str(stage), "fp32", zero_optimization=zero)
        job.finish()
        losses[stage] = [record["loss"] for record in read_records(job.output, "train")]
    assert len(losses[1]) == STEPS
    for stage in (2, 3):
        assert losses[stage] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_all_ranks_skip_the_step_in_which_one_overflows(
    device: torch.device, corpus: SimpleNamespace, tmp_path: Path, stage: int  # noqa: F811
) -> None:  # fmt: skip
    if not get_accelerator().is_fp16_supported():
        pytest.skip("this processor has no fp16")
    zero = killed_runs.CONFIG["zero_optimization"] | {"stage": stage}
    job = make_job(device, corpus, tmp_path / "job", "fp16", fp16=FP16, zero_optimization=zero)
    # Each rank has two backward passes a step: the sixth is of the third step.
    replace(job, module=("tests.gpu.one_rank_overflows", "5")).finish()
    assert [record["overflow_steps"] for record in read_records(job.output, "train")] == [0, 0, *[1] * (STEPS - 2)]
    assert [record["loss_scale"] for record in read_records(job.output, "train")] == [16.0, 16.0, *[8.0] * (STEPS - 2)]


def test_a_rank_that_is_killed_inside_a_collective_ends_the_job_in_bounded_time(
    device: torch.device, corpus: SimpleNamespace, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    job = make_job(device, corpus, tmp_path / "job", "fp32")
    job = replace(job, flags=[*job.flags, "--steps", "100000"])
    first, second = processes = job.start()
    killed_runs.wait_until(lambda: find_latest(job.checkpoints) is not None, processes)
    second.send_signal(signal.SIGSTOP)  # so that the other one waits for it in a collective
    time.sleep(1.0)
    second.kill()
    assert first.wait(timeout=60 * HOST_SECONDS) == EXIT_LOST
    second.wait()
    assert re.search(r"error: lost rank 1 on host \S+: ", job.log.read_text())
