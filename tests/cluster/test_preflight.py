"""The preflight, on hosts that can train and on a host with every problem."""

import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.cluster.hosts import REPOSITORY

KEEPALIVE = "-o ServerAliveInterval=10"


def check(cluster, hosts, data, output, keepalive=KEEPALIVE):
    """Exit status and lines of a preflight on node1, over ssh, of hosts with so many slots each."""
    hostfile = cluster.directory / "hostfile.preflight"
    hostfile.write_text("".join(f"{host} slots={slots}\n" for host, slots in hosts.items()))
    words = [sys.executable, "-m", "pipeline.preflight", "--hostfile", hostfile, "--data", data, "--output", output]
    process = cluster.popen(cluster.hosts["node1"], *words, PDSH_SSH_ARGS_APPEND=keepalive)
    said, _ = process.communicate(timeout=1500)
    return process.returncode, said.splitlines()


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
    hosts = {"node1": 1, "sick": 1000, "node2": 1, "10.64.0.250": 1}
    status, lines = check(cluster, hosts, corpus.train, tmp_path / "runs" / "new", keepalive="")
    assert status == 1
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
