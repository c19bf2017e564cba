"""docs/pretrain.sbatch with stand-ins for Slurm's commands, on two "nodes" of this machine that really train."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.hosts import REPOSITORY
from tests.cluster.slurm import environment
from tests.pipeline.conftest import await_step
from tests.pipeline.test_pretrain import CONFIG, SMALL

SCRIPT = REPOSITORY / "docs" / "pretrain.sbatch"
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
tasks=() status=0
for node in $NODES; do
  SLURM_NODEID=${#tasks[@]} "$@" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do
  wait "$task"
  ended=$?
  status=$((ended > status ? ended : status))
done
exit $status
"""


@pytest.fixture
def slurm(tmp_path):
    """The environment of a job on node[1-2]; what it has put back into the queue stands in $FOLDER/requeued."""
    own = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    return environment(tmp_path, "localhost node2", srun=SRUN) | own


def submit(slurm, corpus, tmp_path, steps, *more):
    config = tmp_path / "small.json"
    config.write_text(json.dumps(CONFIG))
    words = [
        "bash", SCRIPT, tmp_path / "run", "--model", "albert-tiny", "--model-args", *SMALL, "--data", corpus.train,
        "--deepspeed_config", config, "--steps", steps, "--save-interval", "10", *more,
    ]  # fmt: skip
    return subprocess.Popen(
        [str(word) for word in words], cwd=REPOSITORY, env=slurm, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_a_job_whose_time_is_up_requeues_itself_until_the_run_is_done(slurm, corpus, tmp_path):
    requeued, steps = Path(slurm["FOLDER"], "requeued"), 60
    process = submit(slurm, corpus, tmp_path, steps)
    await_step(process, tmp_path / "run", 10)
    process.send_signal(signal.SIGUSR1)  # to the batch shell alone, as --signal=B: has it
    said, _ = process.communicate(timeout=300)
    assert "stopped by SIGUSR1 and saved" in said
    assert "ended with 75: back into the queue" in said
    assert requeued.read_text() == f"{slurm['SLURM_JOB_ID']}\n"
    assert (tmp_path / "run" / "hostfile").read_text() == "localhost slots=1\nnode2 slots=1\n"

    process = submit(slurm, corpus, tmp_path, steps)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "resuming from step" in said
    assert f"finished after {steps} steps" in said
    assert requeued.read_text().count("\n") == 1


def test_a_mistake_is_not_tried_again(slurm, corpus, tmp_path):
    process = submit(slurm | {"NODES": "localhost"}, corpus, tmp_path, 10, "--stepps", "3")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2, said
    assert "unknown argument --stepps" in said
    assert not Path(slurm["FOLDER"], "requeued").exists()
