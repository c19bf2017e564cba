"""docs/elastic.sbatch with stand-ins for Slurm's commands, and docs/kubernetes.yaml against Kubernetes's schema."""

import signal
import subprocess
import time

import kubernetes_validate
import pytest
import yaml
from torch.distributed.run import get_args_parser

from pipeline.settings import pretrain
from tests.cluster.hosts import REPOSITORY
from tests.cluster.slurm import environment

SCRIPT = REPOSITORY / "docs" / "elastic.sbatch"
MANIFEST = REPOSITORY / "docs" / "kubernetes.yaml"
# Each task has its own process group, which scancel signals.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=0 setsid "$@" & first=$!
echo "$first" >"$FOLDER/tasks"
SLURM_NODEID=1 setsid "$@" & second=$!
echo "$second" >>"$FOLDER/tasks"
echo >"$FOLDER/submitted"
wait $first; a=$?
wait $second; b=$?
exit $((a > b ? a : b))
"""
SCANCEL = """#!/bin/bash
[ "$*" = "--signal=TERM $SLURM_JOB_ID" ] || exit 1
for task in $(cat "$FOLDER/tasks"); do kill -TERM -- "-$task"; done
sleep 1 # the tasks may end first
"""
# What torchrun is asked to do goes into a file. Then it waits to be told how to end.
TORCHRUN = """#!/bin/bash
trap 'echo stopped >>"$FOLDER/stopped"; exit 1' TERM
echo "$*" >>"$FOLDER/started.$SLURM_NODEID"
until [ -e "$FOLDER/end" ]; do sleep 0.05; done
exit "$(cat "$FOLDER/end")"
"""


@pytest.fixture
def slurm(tmp_path):
    """The environment of a job on node[1-2]. What the stand-ins are asked to do stands in files in $FOLDER."""
    found = environment(tmp_path, "node1 node2", srun=SRUN, scancel=SCANCEL, torchrun=TORCHRUN)
    return found | {"SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "8"}


def submit(slurm, tmp_path):
    return subprocess.Popen(
        ["bash", SCRIPT, tmp_path / "run", "1", "--model", "albert-tiny"],
        cwd=REPOSITORY, env=slurm, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def starts(tmp_path, node):
    file = tmp_path / f"started.{node}"
    return file.read_text().splitlines() if file.exists() else []


def wait(holds, process):
    deadline = time.monotonic() + 300
    while not holds():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_when_the_time_is_up_the_agents_end_and_the_job_is_requeued(slurm, tmp_path):
    process = submit(slurm, tmp_path)
    wait(lambda: starts(tmp_path, 0) and starts(tmp_path, 1) and (tmp_path / "submitted").exists(), process)
    process.send_signal(signal.SIGUSR1)  # to the batch shell alone, as --signal=B: has it
    said, _ = process.communicate(timeout=300)
    assert "ended with 75: back into the queue" in said
    assert (tmp_path / "requeued").read_text() == f"{slurm['SLURM_JOB_ID']}\n"
    assert (tmp_path / "stopped").read_text().count("stopped") == 2
    for node in (0, 1):
        (line,) = starts(tmp_path, node)
        found = get_args_parser().parse_args(line.split())
        assert (found.nnodes, found.nproc_per_node, found.max_restarts, found.rdzv_backend) == ("1:2", "8", 100, "c10d")
        assert found.rdzv_endpoint == f"node1:{20000 + int(slurm['SLURM_JOB_ID']) % 10000}"
        assert found.training_script == "pipeline.pretrain"
        assert found.training_script_args == ["--output", str(tmp_path / "run"), "--model", "albert-tiny"]


def test_a_run_that_is_done_is_not_requeued_and_a_mistake_is_given_up(slurm, tmp_path):
    process = submit(slurm, tmp_path)
    wait(lambda: starts(tmp_path, 0) and starts(tmp_path, 1), process)
    (tmp_path / "run" / "done").write_text("10\n")
    (tmp_path / "end").write_text("0\n")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said

    (tmp_path / "run" / "done").unlink()
    (tmp_path / "end").write_text("1\n")
    process = submit(slurm, tmp_path)
    said, _ = process.communicate(timeout=300)
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
    flags = pretrain.parse(found.training_script_args)
    assert (REPOSITORY / flags.deepspeed_config).exists()


def test_a_manifest_with_a_misspelt_field_is_invalid():
    _, job = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    job["spec"]["completionsMode"] = job["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError, match="completionsMode"):
        kubernetes_validate.validate(job, "1.37", strict=True)
