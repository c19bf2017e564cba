"""Training over two hosts by pdsh and ssh, as in the README; hosts that die, and hosts that cannot be reached."""

import json
import signal
import sys
from pathlib import Path

import psutil
import pytest
import torch

from pipeline.checkpoint.files import load_weights
from pipeline.distributed.rendezvous import reserve_port
from tests.cluster.conftest import STEPS
from tests.pipeline.conftest import await_step, run
from tests.pipeline.test_pretrain import command

ENDLESS = ("--steps", "100000", "--warmup-steps", "10", "--eval-interval", "100000")
KEEPALIVE = "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"


def start(cluster, corpus, config, output, *hosts, more=()):
    """`deepspeed` on node1, over the hosts that are named, with `more` flags."""
    hostfile = cluster.directory / f"hostfile.{len(hosts)}"
    hostfile.write_text("".join(f"{host} slots=1\n" for host in hosts))
    launcher = ["deepspeed", "--quiet", "--hostfile", hostfile, "--master_addr", "10.64.0.1", "--launcher", "pdsh"]
    launcher += ["--master_port", reserve_port(), "--module"]
    flags = ["--precision", "fp32", "--steps", STEPS, "--log-interval", 1, "--host-timeout", 6, *more]
    words = [*launcher, *command(corpus, config, output, *flags)]
    return cluster.popen(cluster.hosts["node1"], *words, PDSH_SSH_ARGS_APPEND=KEEPALIVE)


def assert_same(output, reference):
    """Logged losses, step by step, and final weights, to 1e-5."""
    losses = []
    for run_directory in (output, reference):
        lines = (run_directory / "metrics.jsonl").read_text().splitlines()
        records = [record for record in map(json.loads, lines) if record["split"] == "train"]
        losses.append({record["step"]: record["loss"] for record in records})
    assert list(losses[0]) == list(range(1, STEPS + 1))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    found, expected = (load_weights(path / "checkpoints") for path in (output, reference))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if (
            "query_key_value.bias" not in name
        ):  # of the keys' part the gradient is rounding noise, which LAMB normalises
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-5)


def wait_until_gone(ranks):
    _gone, alive = psutil.wait_procs(ranks, timeout=1500)
    assert not alive


def test_a_host_that_dies_ends_the_job_and_the_other_goes_on_alone(cluster, corpus, config, alone, tmp_path):
    """Five steps and more on two hosts, and the others on one, are those of one process."""
    output = tmp_path / "dies"
    victim = cluster.start("victim")
    process = start(cluster, corpus, config, output, "10.64.0.1", victim.address)
    await_step(process, output, 5)
    survivor = cluster.hosts["node1"].processes("pipeline.pretrain")
    victim.inside.end()
    wait_until_gone(survivor)
    said, _ = process.communicate(timeout=1500)
    assert process.returncode not in (0, None)
    assert "error: lost rank 1 on host victim: no sign of life for 6 s" in said
    assert not (output / "done").exists()

    words = command(corpus, config, output, "--precision", "fp32", "--steps", STEPS, "--log-interval", 1)
    assert "resuming from step" in run(sys.executable, "-m", *words).stdout
    assert_same(output, alone)


def test_a_host_that_nobody_reaches_ends_the_job_on_both_sides(cluster, corpus, config, tmp_path):
    output = tmp_path / "unplugged"
    nodes = [cluster.hosts[name] for name in ("node1", "node2")]
    process = start(cluster, corpus, config, output, *(node.address for node in nodes), more=ENDLESS)
    await_step(process, output, 5)
    ranks = [node.processes("pipeline.pretrain") for node in nodes]
    assert all(ranks)
    cluster.unplug(nodes[1])
    try:
        for processes in ranks:
            wait_until_gone(processes)
        said, _ = process.communicate(timeout=1500)
    finally:
        cluster.plug_in(nodes[1])
    assert process.returncode not in (0, None)
    assert "error: lost rank 1 on host node2: no sign of life for 6 s" in said


def test_a_kill_of_the_launcher_ends_the_ranks_of_both_hosts(cluster, corpus, config, tmp_path):
    output, nodes = tmp_path / "killed", [cluster.hosts[name] for name in ("node1", "node2")]
    process = start(cluster, corpus, config, output, *(node.address for node in nodes), more=ENDLESS)
    await_step(process, output, 5)
    ranks = [rank for node in nodes for rank in node.processes("pipeline.pretrain")]
    (launcher,) = (
        found
        for found in psutil.Process(process.pid).children(recursive=True)
        if any(Path(word).name == "deepspeed" for word in found.cmdline()[:2])
    )
    launcher.send_signal(signal.SIGTERM)
    wait_until_gone(ranks)
    process.communicate(timeout=1500)
