"""The preflight on a host with every problem; and the first way in docs/cluster.md, which begins with it.

The commands of the page run on two hosts, in its order, with a small model. They are taken from the page. Only what
decides the size or names the machine is replaced.
"""

import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.cluster.hosts import REPOSITORY
from tests.docs.pages import commands_of
from tests.pipeline.conftest import await_step, newest
from tests.pipeline.test_pretrain import CONFIG, SMALL


@pytest.fixture
def sick(cluster, corpus, tmp_path):
    """A host with other code and packages, damaged data, a folder of its own."""
    trainer = tmp_path / "trainer.py"
    trainer.write_text((REPOSITORY / "pipeline" / "training" / "trainer.py").read_text() + "\n# changed\n")
    there = metadata.distribution("tqdm").locate_file(f"tqdm-{metadata.version('tqdm')}.dist-info/METADATA")
    described = tmp_path / "METADATA"
    described.write_text(Path(there).read_text().replace(f"Version: {metadata.version('tqdm')}", "Version: 1.2.3"))
    damaged = tmp_path / "damaged"
    shutil.copytree(corpus.train, damaged)
    (damaged / "shard-00000.arrow").write_bytes(b"cut short")
    own = tmp_path / "own"
    own.mkdir()
    runs = tmp_path / "runs"
    runs.mkdir()
    mounts = {
        REPOSITORY / "pipeline" / "training" / "trainer.py": trainer,
        Path(there): described,
        corpus.train: damaged,
        runs: own,
    }
    host = cluster.start("sick", mounts)
    yield host
    host.inside.end()


def test_every_problem_is_a_line_that_names_the_host(cluster, sick, corpus, tmp_path):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("node1 slots=1\nsick slots=1000\nnode2 slots=1\n10.64.0.250 slots=1\n")
    words = ["-m", "pipeline.preflight", "--hostfile", hostfile, "--data", corpus.train]
    words += ["--output", tmp_path / "runs" / "new"]
    process = cluster.popen(cluster.hosts["node1"], sys.executable, *words, PDSH_SSH_ARGS_APPEND="")
    lines = process.communicate(timeout=1500)[0].splitlines()
    assert process.returncode == 1
    expected = [
        "this host: ssh does not notice that a host is lost; export PDSH_SSH_ARGS_APPEND",
        "sick: other code: pipeline/training/trainer.py ",
        f"sick: other packages: tqdm 1.2.3 ({metadata.version('tqdm')} here); pip install",
        f"sick: other shards: {corpus.train} ",
        "sick: --output is another folder there, or none; it must be one folder",
        "sick: has ",
        "10.64.0.250: cannot be reached by ssh without a password (",
        "4 hosts, 1003 slots: 7 problems (",
    ]
    assert len(lines) == len(expected), "\n".join(lines)
    for line, beginning in zip(lines, expected):
        assert line.startswith(beginning), "\n".join(lines)
    assert "1,000 slots in the hostfile" in lines[5]
    assert not any((tmp_path / "runs").iterdir())


PAGE = REPOSITORY / "docs" / "cluster.md"
SECTION = "## From empty nodes to a training xxlarge"


@pytest.fixture
def checkout(corpus, tmp_path):
    """What looks like /shared/albert on both hosts: the packages, the shards and a small DeepSpeed JSON."""
    folder = tmp_path / "albert"
    folder.mkdir()
    for name in ("common", "data_prep", "model", "pipeline", "requirements.txt"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "shards").mkdir()
    (folder / "shards" / "train").symlink_to(corpus.train)
    (folder / "shards" / "held_out").symlink_to(corpus.held_out)
    (folder / "ds_configs").mkdir()
    (folder / "ds_configs" / "xxlarge-80gb.json").write_text(json.dumps(CONFIG))
    return folder


def test_the_page_from_empty_nodes_to_a_stopped_run(cluster, checkout):
    spare = cluster.start("spare")
    smaller = {
        "node1 node2 node3 node4 node5 node6 node7 node8": "node1 spare",
        "slots=8": "slots=1",
        "node2": "spare",
        "GLOO_SOCKET_IFNAME=eth0 >": "GLOO_SOCKET_IFNAME=eth0 DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 >",
        "--model albert-xxlarge": f"--model albert-tiny --model-args {' '.join(SMALL)} --precision fp32 --steps 100000",
        "--save-interval 500": "--save-interval 5 --host-timeout 6 --eval-interval 100000",
    }
    commands = [command for _, command in commands_of(PAGE, SECTION)][2:]  # make environment, source
    plan = next(command for command in commands if "pipeline.plan" in command)
    commands.remove(plan)
    for given, small in smaller.items():
        assert any(given in command for command in commands), given
        commands = [command.replace(given, small) for command in commands]
    hostfile, variables, keepalive, preflight, start, without, stop = commands

    def popen(*lines):
        script = "\n".join(["set -e", f"cd {checkout}", keepalive, *lines])
        return cluster.popen(cluster.hosts["node1"], "bash", "-c", script)

    def ended(process):
        said, _ = process.communicate(timeout=1500)
        return process.returncode, said

    def stopped(process):
        assert ended(popen(stop))[0] == 0
        return ended(process)

    run = checkout / "runs" / "xxlarge"
    planned = plan.replace("ds_configs/", f"{REPOSITORY}/ds_configs/")
    status, said = ended(popen(hostfile, variables, planned, preflight))
    assert status == 0, said
    assert "2 hosts, 2 slots: ready (" in said

    training = popen(start)
    await_step(training, run, 5)
    spare.inside.end()
    status, said = ended(training)
    assert status != 0
    assert re.search(r"error: lost rank 1 on host spare: ", said), said

    training = popen(without)
    await_step(training, run, newest(run) + 5)
    status, said = stopped(training)
    assert (status, "saved at step" in said) == (75, True), said
    assert "resuming from step" in said
