"""Runs of `pipeline.pretrain` on one rank: fp16 with overflows, and a kill. On the processor the ranks are forked."""

import signal
from dataclasses import replace

import pytest

from pipeline.checkpoint.retention import find_latest
from pipeline.training.metrics_file import read_records
from tests.gpu.conftest import job_of, zero
from tests.pipeline.outcome import differences
from tests.pipeline.workers import killed_runs

pytestmark = pytest.mark.slow
STEPS = 12


@pytest.fixture
def make_job(device, corpus, tmp_path):
    """Makes a job of a name and a precision, with more entries of the DeepSpeed JSON."""
    return lambda name, precision, **more: job_of(device.type, corpus, tmp_path / name, precision, STEPS, more)


def test_fp16_overflows_halve_the_scale_alike_at_every_zero_stage(device, make_job):
    fp16 = {"enabled": True, "initial_scale_power": 24, "hysteresis": 1, "loss_scale_window": 1000}
    losses, overflows = {}, {}
    for stage in (0, 1, 2, 3) if device.type == "cuda" else (0, 1, 3):
        job = make_job(str(stage), "fp16", fp16=fp16, **zero(stage))
        # Stage 3 does not compile, and a compiled dropout draws other masks.
        job = replace(job, flags=[*job.flags, "--compile", "off", "--chunked-loss", "on"])
        if stage == 0:  # DeepSpeed's is wrong there
            with pytest.raises(RuntimeError, match="fp16 at ZeRO stage 0 divides gradients"):
                job.finish()
            continue
        job.finish()
        records = read_records(job.output, "train")
        skipped = records[-1]["overflow_steps"]
        assert 0 < skipped < STEPS
        assert [record["loss_scale"] for record in records] == [2.0 ** (24 - r["overflow_steps"]) for r in records]
        assert all(0 < record["loss"] < 20 for record in records)
        losses[stage], overflows[stage] = zip(*((record["loss"], record["overflow_steps"]) for record in records))
    for stage in losses:
        assert overflows[stage] == overflows[1]
        assert losses[stage] == pytest.approx(losses[1], rel=0.01)


def test_fp16_with_sums_in_fp32_trains_alike_at_every_zero_stage_and_compiled(device, make_job):
    fp16 = {"enabled": True, "initial_scale_power": 13, "hysteresis": 1, "loss_scale_window": 4}
    sums = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32", "fp16": fp16}
    losses = {}
    cases = [(1, "off"), (2, "off"), (3, "off"), *([(1, "on"), (2, "on")] if device.type == "cuda" else [])]
    for stage, compiles in cases:
        job = make_job(f"{stage}-{compiles}", "fp16", **zero(stage), **sums)
        # A compiled dropout draws other masks.
        words = ["hidden_dropout_prob=0" if "dropout" in word else word for word in job.flags]
        job = replace(job, flags=[*words, "--compile", compiles, "--chunked-loss", "on", "--log-interval", "1"])
        job.finish()
        records = read_records(job.output, "train")
        assert [record["overflow_steps"] for record in records] == [0] * STEPS
        assert records[-1]["loss_scale"] > 2**13  # it has grown, and the gradients with it
        losses[stage, compiles] = [record["loss"] for record in records]
    for case, found in losses.items():
        assert found == pytest.approx(losses[1, "off"], rel=0.01), case


def test_a_killed_deterministic_run_ends_with_the_same_bits(device, make_job):
    precision = "fp16" if device.type == "cuda" else "fp32"
    jobs = [make_job(name, precision) for name in ("undisturbed", "killed")]
    undisturbed, killed = (replace(job, flags=[*job.flags, "--deterministic"]) for job in jobs)
    undisturbed.finish()
    processes = killed.start()
    killed_runs.wait_until(lambda: find_latest(killed.checkpoints) is not None, processes)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed.finish()
    assert differences(killed.output, undisturbed.output) == []
