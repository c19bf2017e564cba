"""docs/*.sbatch with stand-ins for Slurm's commands, and docs/kubernetes.yaml against Kubernetes's schema."""

import json
import os
import random
import shutil
import signal
import subprocess

import kubernetes_validate
import pytest
import yaml
from deepspeed.launcher.runner import parse_args
from deepspeed.utils.numa import parse_range_list
from torch.distributed.run import get_args_parser

from pipeline.settings import pretrain_flags
from tests.cluster.hosts import REPOSITORY
from tests.data_prep.corpora import wait_until
from tests.pipeline.conftest import await_step
from tests.pipeline.test_pretrain import CONFIG, SMALL

MANIFEST = REPOSITORY / "docs" / "kubernetes.yaml"
# The names of the job's nodes are in $HOSTS. What is put back into the queue goes into a file in $FOLDER.
SCONTROL = """#!/bin/bash
case "$1 $2" in
"show hostnames") [ "$3" = "node[1-2]" ] && printf '%s\\n' $HOSTS ;;
"requeue $SLURM_JOB_ID") echo "$2" >>"$FOLDER/requeued" ;;
*) exit 1 ;;
esac
"""
# Each task has its own process group, which scancel signals.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do echo "$1" >>"$FOLDER/srun"; shift; done
tasks=() status=0
for node in $HOSTS; do
  SLURM_NODEID=${#tasks[@]} setsid "$@" &
  tasks+=($!)
  echo $! >>"$FOLDER/tasks"
done
echo >"$FOLDER/submitted"
for task in "${tasks[@]}"; do
  wait "$task"
  ended=$?
  status=$((ended > status ? ended : status))
done
exit $status
"""
SCANCEL = """#!/bin/bash
[ "$*" = "--signal=TERM $SLURM_JOB_ID" ] || exit 1
for task in $(cat "$FOLDER/tasks"); do kill -TERM -- "-$task"; done
sleep 1 # the tasks may end first
"""
# What a launcher is asked to do goes into a file. Then it waits to be told how to end.
LAUNCHER = """#!/bin/bash
trap 'echo stopped >>"$FOLDER/stopped"; exit 1' TERM
echo "$*" >>"$FOLDER/started.$SLURM_NODEID"
until [ -e "$FOLDER/end" ]; do sleep 0.05; done
exit "$(cat "$FOLDER/end")"
"""


@pytest.fixture
def slurm(tmp_path):
    """The environment of a job on node[1-2]. What the stand-ins are asked to do stands in files in $FOLDER."""
    place = tmp_path / "programs"
    place.mkdir()
    programs = {"scontrol": SCONTROL, "srun": SRUN, "scancel": SCANCEL, "torchrun": LAUNCHER, "deepspeed": LAUNCHER}
    for name, text in programs.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return os.environ | {
        "PATH": f"{place}:{os.environ['PATH']}",
        "FOLDER": str(tmp_path),
        "HOSTS": "localhost node2",
        "SLURM_JOB_ID": str(random.randrange(10**6)),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_CPUS_PER_TASK": "64",
    }


def submit(script, slurm, tmp_path, *flags):
    return subprocess.Popen(
        ["bash", f"docs/{script}.sbatch", *map(str, (tmp_path / "run", *flags))],
        cwd=REPOSITORY, env=slurm, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def starts(tmp_path, node):
    file = tmp_path / f"started.{node}"
    return file.read_text().splitlines() if file.exists() else []


def test_a_job_whose_time_is_up_saves_and_requeues_itself(slurm, corpus, tmp_path):
    """pretrain.sbatch on two "nodes" of this machine that really train."""
    (tmp_path / "programs" / "deepspeed").unlink()
    config = tmp_path / "small.json"
    config.write_text(json.dumps(CONFIG))
    own = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "SLURM_GPUS_ON_NODE": "1"}
    process = submit(
        "pretrain", slurm | own, tmp_path, "--model", "albert-tiny", "--model-args", *SMALL, "--data", corpus.train,
        "--deepspeed_config", config, "--steps", 10_000, "--save-interval", 5,
    )  # fmt: skip
    await_step(process, tmp_path / "run", 5)
    process.send_signal(signal.SIGUSR1)  # to the batch shell alone, as --signal=B: has it
    said, _ = process.communicate(timeout=1500)
    assert "stopped by SIGUSR1 and saved" in said
    assert "ended with 75: back into the queue" in said
    assert (tmp_path / "requeued").read_text() == f"{slurm['SLURM_JOB_ID']}\n"
    assert (tmp_path / "run" / "hostfile").read_text() == "localhost slots=1\nnode2 slots=1\n"


@pytest.mark.parametrize(
    ("ends", "status", "requeued"), [(0, 0, False), (2, 2, False), (1, 1, False), (69, 0, True), (247, 0, True)]
)
def test_a_job_is_requeued_only_where_that_helps(slurm, tmp_path, ends, status, requeued):
    (tmp_path / "end").write_text(f"{ends}\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "done").write_text("10\n")  # of the end before the run was made longer
    process = submit("pretrain", slurm, tmp_path, "--model", "albert-tiny")
    said, _ = process.communicate(timeout=1500)
    assert process.returncode == status, said
    assert (tmp_path / "requeued").exists() == requeued
    # srun does not take over sbatch's number of cores a task by itself.
    assert "--cpus-per-task=64" in (tmp_path / "srun").read_text().split()
    for node in (0, 1):
        (line,) = starts(tmp_path, node)
        found = parse_args(line.split())
        assert (found.hostfile, found.node_rank, found.no_ssh) == (str(tmp_path / "run" / "hostfile"), node, True)
        assert (found.master_addr, found.module, found.user_script) == ("localhost", True, "pipeline.pretrain")
        assert found.bind_cores_to_rank == (shutil.which("numactl") is not None)
        if found.bind_cores_to_rank:
            assert set(parse_range_list(found.bind_core_list)) == os.sched_getaffinity(0)
        assert found.user_args == ["--output", str(tmp_path / "run"), "--model", "albert-tiny"]


def test_when_the_time_is_up_the_agents_end_and_the_job_is_requeued(slurm, tmp_path):
    process = submit("elastic", slurm, tmp_path, 1, "--model", "albert-tiny")
    wait_until(lambda: starts(tmp_path, 0) and starts(tmp_path, 1) and (tmp_path / "submitted").exists(), process)
    process.send_signal(signal.SIGUSR1)  # to the batch shell alone, as --signal=B: has it
    said, _ = process.communicate(timeout=1500)
    assert "ended with 75: back into the queue" in said
    assert (tmp_path / "requeued").read_text() == f"{slurm['SLURM_JOB_ID']}\n"
    assert (tmp_path / "stopped").read_text().count("stopped") == 2
    assert "--cpus-per-task=64" in (tmp_path / "srun").read_text().split()
    for node in (0, 1):
        (line,) = starts(tmp_path, node)
        found = get_args_parser().parse_args(line.split())
        assert (found.nnodes, found.nproc_per_node, found.max_restarts, found.rdzv_backend) == ("1:2", "8", 100, "c10d")
        assert found.rdzv_endpoint == f"localhost:{20000 + int(slurm['SLURM_JOB_ID']) % 10000}"
        assert found.training_script == "pipeline.pretrain"
        assert found.training_script_args == ["--output", str(tmp_path / "run"), "--model", "albert-tiny"]


def test_a_run_that_is_done_is_not_requeued_and_a_mistake_is_given_up(slurm, tmp_path):
    process = submit("elastic", slurm, tmp_path, 1, "--model", "albert-tiny")
    wait_until(lambda: starts(tmp_path, 0) and starts(tmp_path, 1), process)
    (tmp_path / "run" / "done").write_text("10\n")
    (tmp_path / "end").write_text("0\n")
    said, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, said

    (tmp_path / "end").write_text("1\n")  # of a longer run, whose directory has the file still
    process = submit("elastic", slurm, tmp_path, 1, "--model", "albert-tiny")
    said, _ = process.communicate(timeout=1500)
    assert process.returncode == 1, said
    assert [len(starts(tmp_path, node)) for node in (0, 1)] == [4, 4], "one of the first job, three of the second"
    assert not (tmp_path / "requeued").exists()


def test_the_manifest_is_valid_and_its_parts_agree():
    service, job = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    for part in (service, job):
        kubernetes_validate.validate(part, "1.37", strict=True)
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
    assert service["spec"]["clusterIP"] == "None", "headless: each pod has an address of its own"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert pod["subdomain"] == name
    (container,) = pod["containers"]
    found = get_args_parser().parse_args(container["args"])
    assert found.rdzv_endpoint == f"{job['metadata']['name']}-0.{name}:{port}"
    least, most = map(int, found.nnodes.split(":"))
    assert spec["completionMode"] == "Indexed"
    assert most == spec["completions"] == spec["parallelism"]
    assert spec["maxFailedIndexes"] == most - least
    assert int(found.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert found.local_addr == "$(POD_IP)"
    assert "POD_IP" in variables
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    assert found.training_script == "pipeline.pretrain"
    flags = pretrain_flags.parse(found.training_script_args)
    assert (REPOSITORY / flags.deepspeed_config).exists()
