"""Ranks that are lost, fail or never come: real processes, without a model."""

import ctypes
import json
import os
import signal
import time

import pytest

from common.errors import UserError
from pipeline.distributed.ports import reserve_port
from tests.pipeline.workers.forked import Forked

pytestmark = pytest.mark.slow


def be_a_rank(case, seconds):
    """What each of the processes does: they meet within `seconds`, and wait for each other once."""
    import torch.distributed as dist

    from pipeline.distributed import liveness
    from pipeline.distributed.exits import run_and_exit
    from pipeline.distributed.liveness import Liveness
    from pipeline.distributed.rendezvous import Rendezvous
    from pipeline.training import launch

    rendezvous = Rendezvous(seconds)

    def prepare():
        if case == "lacks" and rendezvous.rank == 1:
            raise UserError("no data here")
        return rendezvous.rank if case == "differs" else 0

    def main():
        rendezvous.agree(prepare, lambda found: {"the number": str(found)})
        try:
            return work()
        except UserError as error:
            launch.report_user_error(error, rendezvous.rank)

    def work():
        if case == "unreachable":  # port 1 of this host is closed
            liveness._ACCEPT_SECONDS = 5.0
            rendezvous.ask = lambda name: json.dumps([1, "token"])
            os.environ["LOCAL_RANK"] = "0"  # as on another host
        with Liveness(rendezvous, seconds=3.0):
            dist.init_process_group("gloo")
            print("begun", flush=True)
            if case == "raises" and rendezvous.rank == 1:
                raise ValueError("row 7 is odd")
            if case == "alone" and rendezvous.rank == 1:
                raise UserError("only here")
            if case == "busy" and rendezvous.rank == 1:
                ctypes.PyDLL(None).sleep(5)  # no other thread of this process runs meanwhile
            dist.barrier()
            if case == "waits":
                time.sleep(60)
        return 0

    run_and_exit(main)


@pytest.fixture
def start(tmp_path):
    def start_ranks(case, ranks=3, absent=(), seconds=60.0):
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(ranks)}
        return [
            Forked(
                tmp_path / str(rank), be_a_rank, case, seconds,
                environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(ranks)
            if rank not in absent
        ]  # fmt: skip

    return start_ranks


def ends(processes):
    """Status and error output of each process."""
    return [process.status() for process in processes], [process.stderr for process in processes]


@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_is_killed_ends_the_others(start, lost):
    processes = start("waits")
    for process in processes:
        process.has_said("begun\n")
    since = time.monotonic()
    processes[lost].process.kill()
    statuses, errors = ends(processes)
    print(f"killed rank {lost}: the others have ended after {time.monotonic() - since:.2f} s")
    assert statuses == [-signal.SIGKILL if rank == lost else 69 for rank in range(3)]
    speaker = 1 if lost == 0 else 0
    assert errors[speaker].startswith(f"error: lost rank {lost} on host {os.uname().nodename}: its process ended")
    assert sum(error.count("\n") for error in errors) == 1


def test_a_rank_that_fails_ends_those_that_wait_for_it_and_says_why(start):
    processes = start("raises")
    statuses, errors = ends(processes)
    assert statuses == [1, 1, 1]
    assert "Traceback" in errors[1]
    assert errors[0].startswith("error: rank 1 on host")
    assert errors[0].endswith("failed: ValueError: row 7 is odd\n")
    assert errors[2] == ""


def test_a_mistake_that_only_one_rank_finds_ends_all(start):
    statuses, errors = ends(start("alone", ranks=2))
    assert statuses[0] == 2
    assert "rank 1 on host" in errors[0]
    assert "only here" in errors[0]


def test_a_rank_that_cannot_connect_says_so(start):
    statuses, errors = ends(start("unreachable", ranks=2))
    assert statuses == [69, 69]
    host = os.uname().nodename
    assert "cannot connect to port 1 of " in errors[1]
    assert "lost rank 1 on host " + host + ": it never connected" in errors[0]
    for rank in range(2):
        assert errors[rank].endswith("allow TCP connections between the hosts on all ports\n")
        assert errors[rank].count("\n") == 1


def test_ranks_that_are_busy_or_done_are_not_lost(start):
    statuses, errors = ends(start("busy", ranks=2))
    assert (statuses, errors) == ([0, 0], ["", ""])


@pytest.mark.parametrize(
    ("case", "absent", "status", "line"),
    [
        ("lacks", (), 2, "rank 1 on host {host}: no data here"),
        ("differs", (), 2, "rank 1 on host {host}: the number is 1, and 0 on host {host}"),
        ("nothing", (2,), 69, "1 of 3 ranks did not come within 3 s (rank 2; the others came from host {host})"),
    ],
)
def test_ranks_that_do_not_agree_or_do_not_come(start, case, absent, status, line):
    statuses, errors = ends(start(case, absent=absent, seconds=3.0 if absent else 60.0))
    assert set(statuses) == {status}
    assert line.format(host=os.uname().nodename) in errors[0]
    assert errors[0].startswith("error: ")
    assert errors[0].count("\n") == 1
    assert errors[1] == ""


def test_a_first_rank_that_never_comes_is_missed(start):
    statuses, errors = ends(start("nothing", ranks=2, absent=(0,), seconds=2.0))
    assert statuses == [69]
    assert "found no rank 0 at 127.0.0.1" in errors[0]
