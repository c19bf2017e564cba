"""Ranks that are lost, fail, hang or never come: real processes, without a model."""

import ctypes
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from common.errors import UserError
from pipeline.distributed.exits import run_and_exit
from pipeline.distributed.monitor import progress, watch
from pipeline.distributed.monitor.watch import Watch
from pipeline.distributed.rendezvous import Rendezvous, reserve_port
from tests.pipeline.workers.forked import Forked

pytestmark = pytest.mark.slow

HOST = os.uname().nodename
HANG_SECONDS = 5.0


@pytest.fixture
def start(tmp_path):
    def start_ranks(work, case, ranks, absent=(), seconds=200.0):
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(ranks)}
        return [
            Forked(
                tmp_path / str(rank), work, case, tmp_path, seconds,
                environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(ranks)
            if rank not in absent
        ]  # fmt: skip

    return start_ranks


def ends(processes):
    """Status and error output of each process."""
    return [process.status() for process in processes], [process.stderr for process in processes]


def meet_and_wait(case, output, seconds):
    """What each of the processes does: they meet within `seconds`, and wait for each other once."""
    import torch.distributed as dist

    from pipeline.run import launch

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
            watch._CONNECT_SECONDS = 5.0
            rendezvous.ask = lambda name: json.dumps([1, "token"])
        with Watch(rendezvous, output, host_timeout=3.0, hang_timeout=0.0):
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
                time.sleep(600)
        return 0

    run_and_exit(main)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_is_killed_ends_the_others(start, lost):
    processes = start(meet_and_wait, "waits", 3)
    for process in processes:
        process.has_said("begun\n")
    processes[lost].process.kill()
    statuses, errors = ends(processes)
    assert statuses == [-signal.SIGKILL if rank == lost else 69 for rank in range(3)]
    assert errors[0].startswith(f"error: lost rank {lost} on host {HOST}: its process ended")
    assert sum(error.count("\n") for error in errors) == 1


def watcher_of(rank):
    """The process beside a rank."""
    import psutil

    (watcher,) = psutil.Process(rank.process.pid).children()
    return watcher


@pytest.mark.parametrize("lost", [0, 1])
def test_a_watcher_that_is_killed_ends_the_job(start, lost):
    processes = start(meet_and_wait, "waits", 2)
    for process in processes:
        process.has_said("begun\n")
    watcher_of(processes[lost]).kill()
    statuses, errors = ends(processes)
    assert statuses == [69, 69]
    assert f"error: the watcher of rank {lost} on host {HOST} has ended; " in errors[lost]
    assert f"error: lost rank {lost} on host {HOST}: its process ended" in errors[1 - lost]


def test_a_rank_that_fails_ends_those_that_wait_for_it_and_says_why(start):
    statuses, errors = ends(start(meet_and_wait, "raises", 3))
    assert statuses == [1, 1, 1]
    assert "Traceback" in errors[1]
    assert errors[0].startswith("error: rank 1 on host")
    assert errors[0].endswith("failed: ValueError: row 7 is odd\n")
    assert errors[2] == ""


def test_a_mistake_that_only_one_rank_finds_ends_all(start):
    statuses, errors = ends(start(meet_and_wait, "alone", 2))
    assert statuses[0] == 2
    assert f"rank 1 on host {HOST}: only here" in errors[0]


def test_a_rank_that_cannot_connect_says_so(start):
    statuses, errors = ends(start(meet_and_wait, "unreachable", 2))
    assert statuses == [69, 69]
    assert "cannot connect to port 1 of " in errors[1]
    assert f"lost rank 1 on host {HOST}: it never connected" in errors[0]
    for error in errors:
        assert error.endswith("allow TCP connections between the hosts on all ports\n")
        assert error.count("\n") == 1


def test_ranks_that_are_busy_or_done_are_not_lost(start):
    assert ends(start(meet_and_wait, "busy", 2)) == ([0, 0], ["", ""])


@pytest.mark.parametrize(
    ("case", "absent", "status", "line"),
    [
        ("lacks", (), 2, f"rank 1 on host {HOST}: no data here"),
        ("differs", (), 2, f"rank 1 on host {HOST}: the number is 1, and 0 on host {HOST}"),
        ("nothing", (2,), 69, f"1 of 3 ranks did not come within 3 s (rank 2; the others came from host {HOST})"),
    ],
)
def test_ranks_that_do_not_agree_or_do_not_come(start, case, absent, status, line):
    statuses, errors = ends(start(meet_and_wait, case, 3, absent=absent, seconds=3.0 if absent else 200.0))
    assert set(statuses) == {status}
    assert line in errors[0]
    assert errors[0].startswith("error: ")
    assert errors[0].count("\n") == 1
    assert errors[1] == ""


def test_a_first_rank_that_never_comes_is_missed(start):
    statuses, errors = ends(start(meet_and_wait, "nothing", 2, absent=(0,), seconds=2.0))
    assert statuses == [69]
    assert "found no rank 0 at 127.0.0.1" in errors[0]


def wait_for_data():
    time.sleep(600)


def hold_the_lock():
    ctypes.PyDLL(None).sleep(600)  # no other thread of this process runs meanwhile


def hold_the_lock_for_ever():
    """Locks a mutex twice in compiled code: no signal and no other thread ends that."""
    mutex, libc = ctypes.create_string_buffer(128), ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def make_steps(case, output, seconds):
    """What each of the processes does: ten steps with a collective each, the fifth of which goes as `case` says."""
    import torch.distributed as dist

    rendezvous = Rendezvous()
    culprit = rendezvous.world_size - 1

    def fail(own):
        if case == "data":
            wait_for_data()
        elif case == "stopped":
            own.enter("backward", 2)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif case == "lock":
            own.enter("forward", 1)
            hold_the_lock()
        elif case == "mutex":
            own.enter("forward", 1)
            hold_the_lock_for_ever()
        elif case == "has reasons":
            with own.during("compilation"):
                time.sleep(1.5 * HANG_SECONDS)
            with own.during("evaluation"):
                for _ in range(15):  # batches
                    own.beat()
                    time.sleep(HANG_SECONDS / 10)

    def main():
        rendezvous.agree(lambda: None, lambda found: {})
        with Watch(rendezvous, output, host_timeout=60.0, hang_timeout=HANG_SECONDS):
            dist.init_process_group("gloo")
            own = progress.get_progress()
            for own.step in range(1, 11):
                own.enter("data")
                began = time.perf_counter()
                if own.step == 5 and rendezvous.rank == culprit:
                    fail(own)
                if own.step > 5 and rendezvous.world_size == 1:
                    wait_for_data()  # a rank alone goes on when a signal ends its sleep
                own.enter("agreement")
                dist.barrier()
                own.took_step(time.perf_counter() - began)
        return 0

    run_and_exit(main)


def stacks(output: Path, rank: int) -> str:
    (directory,) = (output / "hangs").iterdir()
    return (directory / f"rank-{rank:05d}.txt").read_text()


@pytest.mark.parametrize(
    ("case", "ranks", "where", "function"),
    [
        ("data", 3, "phase data of step 5; 2 other ranks wait for it in collective", "in wait_for_data"),
        ("stopped", 3, "phase backward of step 5, micro-step 2; its process is stopped; 2 other ranks", "in fail"),
        ("mutex", 2, "phase forward of step 5, micro-step 1; 1 other rank waits", "in hold_the_lock_for_ever"),
        ("lock", 1, "phase forward of step 5, micro-step 1\n", "in hold_the_lock"),
    ],
)
def test_the_rank_that_does_not_come_is_named(start, tmp_path, case, ranks, where, function):
    statuses, errors = ends(start(make_steps, case, ranks))
    assert statuses[:-1] == [69] * (ranks - 1)
    assert statuses[-1] == (-signal.SIGKILL if case == "mutex" else 69)
    first, last = errors[0].splitlines(keepends=True)
    assert re.match(
        rf"error: rank {ranks - 1} on host {HOST} hangs: no progress for \d+ s in {re.escape(where)}", first
    )
    assert last.startswith(f"error: the stacks of all ranks are in {tmp_path}/hangs/")
    assert errors[1:] == [""] * (ranks - 1)
    assert function in stacks(tmp_path, ranks - 1)
    for rank in range(ranks - 1):
        assert "in barrier" in stacks(tmp_path, rank)
    assert "kernel: thread" in stacks(tmp_path, 0)


def test_a_long_wait_with_a_reason_is_no_hang(start, tmp_path):
    assert ends(start(make_steps, "has reasons", 2)) == ([0, 0], ["", ""])
    assert not (tmp_path / "hangs").exists()
