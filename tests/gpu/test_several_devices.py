"""Runs of `pipeline.pretrain` on several ranks: ZeRO 1 to 3, another number of ranks, an overflow, a killed rank.

On GPUs of their own, and on one GPU, as `benchmarks.shared.job` describes. On the processor all ranks share it.
"""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import pytest
import torch

from benchmarks.shared.job import Job, one_card_backend
from pipeline.checkpoint.retention import find_latest
from pipeline.distributed.exits import EXIT_LOST
from pipeline.training.metrics_file import read_records
from tests.gpu.conftest import MARKS, job_of, zero
from tests.pipeline.workers import killed_runs

pytestmark = pytest.mark.slow
STEPS, HOST_SECONDS = 8, 10
FP16 = {"enabled": True, "initial_scale_power": 4, "hysteresis": 1, "loss_scale_window": 1000}
TOLERANCE = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.02}  # of a loss, relative: the order of sums differs
backend = cache(one_card_backend)


@pytest.fixture(
    params=["cpu", *(pytest.param(f"cuda-{kind}", marks=MARKS) for kind in ("several_devices", "one_card"))]
)
def make_job(request, corpus, tmp_path, record_property):
    """Makes a job of a name, a precision, and entries of the DeepSpeed JSON."""
    device, _, kind = request.param.partition("-")
    if kind == "several_devices" and torch.cuda.device_count() < 4:
        pytest.skip("this machine has fewer than four GPUs")
    one_card = None if kind == "several_devices" else backend(device)
    record_property("backend", one_card or "nccl")

    def make(name, precision, ranks=2, **more):
        job = job_of(device, corpus, tmp_path / name, precision, STEPS, more)
        flags = [*job.flags, "--log-interval", "1", "--host-timeout", str(HOST_SECONDS)]
        return replace(job, flags=flags, ranks=ranks, one_card=one_card if ranks > 1 else None)

    return make


def _without_dropout(flags: list[str]) -> list[str]:
    at = flags.index("hidden_dropout_prob=0.1")
    return [*flags[:at], "hidden_dropout_prob=0", "attention_probs_dropout_prob=0", *flags[at + 1 :]]


def finish(jobs: list[Job]) -> None:
    """At the same time on a GPU. A processor would be too slow."""
    with ThreadPoolExecutor(len(jobs) if jobs[0].device == "cuda" else 1) as pool:
        list(pool.map(Job.finish, jobs))


@pytest.mark.parametrize(
    ("precision", "ranks"),
    [("fp32", (2, 3)), ("fp16", (2, 4)), pytest.param("bf16", (4, 2), marks=MARKS)],
    ids=str,
)
def test_every_zero_stage_trains_and_goes_on_with_other_ranks_as_one_rank_does(make_job, precision, ranks):
    sums = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    fp16 = {"fp16": {"enabled": True, "initial_scale_power": 10}} if precision == "fp16" else {}
    one = make_job("one", precision, 1, **zero(1), **sums, **fp16)
    stages = (1, 2, 3) if one.device == "cuda" else (3,)  # on a processor tests/pipeline/training has them all
    jobs = [make_job(str(stage), precision, ranks[0], **zero(stage), **sums, **fp16) for stage in stages]
    # Each rank draws its own dropout; stage 3 does not compile.
    jobs = [replace(job, flags=[*_without_dropout(job.flags), "--compile", "off"]) for job in (one, *jobs)]
    finish([replace(job, flags=[*job.flags, "--steps", "5"]) for job in jobs])
    finish([job if job.ranks == 1 else replace(job, ranks=ranks[1]) for job in jobs])
    alone, *several = [[record["loss"] for record in read_records(job.output, "train")] for job in jobs]
    assert len(alone) == STEPS
    for losses in several:
        assert losses == pytest.approx(alone, rel=TOLERANCE[precision])


def test_all_ranks_skip_the_step_in_which_one_overflows(make_job):
    jobs = [make_job("3", "fp16", fp16=FP16, **zero(3))]
    if jobs[0].device == "cuda":  # on a processor tests/pipeline/engine has them all
        jobs += [make_job(str(stage), "fp16", fp16=FP16, **zero(stage)) for stage in (1, 2)]
    # Each rank has two backward passes a step: the sixth is of the third step.
    finish([replace(job, module=("tests.gpu.one_rank_overflows", "5")) for job in jobs])
    for job in jobs:
        records = read_records(job.output, "train")
        assert [record["overflow_steps"] for record in records] == [0, 0, *[1] * (STEPS - 2)]
        assert [record["loss_scale"] for record in records] == [16.0, 16.0, *[8.0] * (STEPS - 2)]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=MARKS)])
def test_a_rank_that_is_killed_inside_a_collective_ends_the_job_in_bounded_time(make_job, ranks):
    job = make_job("job", "fp32", ranks)
    job = replace(job, flags=[*job.flags, "--steps", "100000"])
    first, second, *others = processes = job.start()
    killed_runs.wait_until(lambda: find_latest(job.checkpoints) is not None, processes)
    second.send_signal(signal.SIGSTOP)  # so that the other one waits for it in a collective
    time.sleep(1.0)
    second.kill()
    assert first.wait(timeout=60 * HOST_SECONDS) == EXIT_LOST
    for process in (second, *others):
        process.wait(timeout=60)
    assert re.search(r"error: lost rank 1 on host \S+: ", job.log.read_text())
