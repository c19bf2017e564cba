"""The burn-in: who meets whom, which host is slow, and the program on three "hosts" of this machine."""

import json
import subprocess
import sys
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import pytest

from pipeline.distributed.hosts import burn_in
from pipeline.distributed.hosts import burn_in_program as program
from pipeline.distributed.hosts.burn_in import name_slow, run_burn_in, summarise
from pipeline.distributed.hosts.burn_in_program import Measured, Task, pairs
from pipeline.distributed.rendezvous import reserve_port
from pipeline.preflight import main


@pytest.mark.parametrize("hosts", range(1, 10))
def test_each_host_meets_each_other_one_once_and_one_at_a_time(hosts):
    rounds = pairs(hosts)
    for meetings in rounds:
        present = [host for pair in meetings for host in pair]
        assert len(present) == len(set(present))
    assert sorted(pair for meetings in rounds for pair in meetings) == list(combinations(range(hosts), 2))


SLOTS = {"node1": 2, "node2": 2, "node3": 2, "node4": 2}


def of_hosts(tflops, links):
    """What each rank measured; `links` are the speeds of the hosts, and the slower end decides."""
    return [
        Measured(tflops[rank], {str(other): min(links[rank // 2], links[other]) for other in range(4)
                                if other != rank // 2})
        for rank in range(8)
    ]  # fmt: skip


def test_slow_devices_and_links_are_named():
    even = [500.0] * 8
    assert name_slow(SLOTS, of_hosts(even, [10.0] * 4)) == []
    uneven = [500.0, 510.0, 505.0, 380.0, 490.0, 500.0, 460.0, 500.0]
    (line,) = name_slow(SLOTS, of_hosts(uneven, [10.0, 10.0, 9.0, 10.0]))
    assert line.startswith("node2: slot 1 computes at 76 % of the median (380 of 500 TFLOP/s)")
    (line,) = name_slow(SLOTS, of_hosts(even, [10.0, 10.0, 1.0, 10.0]))
    assert line.startswith("node3: all-reduces with the other hosts reach 10 % of the median (1 of 10 GB/s)")
    assert summarise(SLOTS, of_hosts(uneven, [10.0] * 4)) == (
        "burn-in: 380 to 510 TFLOP/s a slot, all-reduces of two hosts 10 to 10 GB/s"
    )


def test_a_link_of_two_hosts_has_nothing_to_be_compared_with():
    measured = [Measured(500.0, {"1": 1.0}), Measured(500.0, {"0": 1.0})]
    assert name_slow({"node1": 1, "node2": 1}, measured) == []
    assert summarise({"node1": 1}, [Measured(500.0)]) == "burn-in: 500 to 500 TFLOP/s a slot"


@pytest.mark.slow
def test_the_program_measures_every_host_and_the_slow_one_is_named():
    slots = {"node1": 1, "node2": 1, "node3": 1}
    port, text = reserve_port(), Path(program.__file__).read_text()
    product = "torch.mm(left, right)"
    assert product in text
    slow_text = text.replace(product, f"{product}, time.sleep(0.3)")
    hosts = []
    for number in range(3):
        task = Task(number, list(slots.values()), "127.0.0.1", port, 1.0, "cpu")
        hosts.append(
            subprocess.Popen(
                [sys.executable, "-c", slow_text if number == 1 else text, json.dumps(asdict(task))], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
    for host in hosts:
        assert host.wait(timeout=200) == 0, host.stderr.read()
    measured = [Measured(**one) for one in json.loads(hosts[0].stdout.read())]
    assert [sorted(one.gigabytes_per_second) for one in measured] == [["1", "2"], ["0", "2"], ["0", "1"]]
    assert all(speed > 0 for one in measured for speed in one.gigabytes_per_second.values())
    assert min(measured, key=lambda one: one.tflops) is measured[1]
    assert any(line.startswith("node2: slot 0 computes at") for line in name_slow(slots, measured))
    assert [host.stdout.read() for host in hosts[1:]] == ["", ""]


def test_what_nccl_prints_is_no_measurement(monkeypatch):
    measured = [Measured(500.0, {"1": 10.0}), Measured(490.0, {"0": 10.0})]

    class Remote:
        def __init__(self, *arguments):
            pass

        def finish(self, seconds):
            lines = ["NCCL version 2.28.9+cuda13.0", json.dumps([asdict(one) for one in measured])]
            return "\n".join(["[Gloo] Rank 0 is connected", *lines, "node1:7:9 [0] NCCL INFO comm", ""]), ""

    monkeypatch.setattr(burn_in, "RemotePython", Remote)
    slots = {"node1": 1, "node2": 1}
    assert run_burn_in(slots, {"NCCL_DEBUG": "INFO"}, "node1", 29500, 1.0) == (measured, [])


@pytest.mark.slow
def test_the_program_ends_when_the_asking_host_is_gone():
    task = Task(0, [1, 1], "127.0.0.1", reserve_port(), 2.0, "cpu")  # the second host never comes
    text = Path(program.__file__).read_text()
    host = subprocess.Popen([sys.executable, "-c", text, json.dumps(asdict(task))], stdin=subprocess.PIPE)
    host.stdin.close()
    assert host.wait(timeout=300) == 1


@pytest.mark.parametrize("seconds", ["0", "86401", "nan", "long"])
def test_a_time_that_is_none_is_refused(monkeypatch, capsys, seconds):
    monkeypatch.setattr(sys, "argv", ["preflight", "--hostfile", "hostfile.example", "--burn-in", seconds])
    with pytest.raises(SystemExit) as left:
        sys.exit(main())
    assert left.value.code == 2
    assert "--burn-in" in capsys.readouterr().err
