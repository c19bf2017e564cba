"""Ranks that live but do not come: real processes, without a model."""

import ctypes
import os
import re
import signal
import time
from pathlib import Path

import pytest

from pipeline.distributed.exits import run_and_exit
from pipeline.distributed.ports import reserve_port
from tests.pipeline.workers.forked import Forked

pytestmark = pytest.mark.slow

TIMEOUT = 2.0
LONG = 1.5 * TIMEOUT
LIMITS = {"not watched": 0.0, "a raised limit": 60.0}
"""--hang-timeout, for a rank that a debugger stops."""
HOST = os.uname().nodename


def wait_for_data():
    time.sleep(600)


def hold_the_lock():
    ctypes.PyDLL(None).sleep(600)  # no other thread of this process runs meanwhile


def hold_the_lock_for_ever():
    """Locks a mutex twice in compiled code: no signal and no other thread ends that."""
    mutex, libc = ctypes.create_string_buffer(128), ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def be_a_rank(case, output):
    """What each of the processes does: ten steps with a collective each, the fifth of which goes as `case` says."""
    import torch.distributed as dist

    from pipeline.checkpoint.saver import Work
    from pipeline.distributed.hangs import progress
    from pipeline.distributed.hangs.watch import Watch
    from pipeline.distributed.liveness import Liveness
    from pipeline.distributed.rendezvous import Rendezvous

    rendezvous = Rendezvous()
    culprit = rendezvous.world_size - 1
    saves = []

    def step(own, number):
        own.step = number
        own.enter("data")
        began = time.perf_counter()
        if number == 5 and rendezvous.rank == culprit:
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
            elif case == "disk":
                own.enter("save")
                saves[0].wait()
            elif case == "has reasons":
                with own.during("compilation"):
                    time.sleep(LONG)
                with own.during("evaluation"):
                    for _ in range(6):  # batches
                        own.beat()
                        time.sleep(LONG / 6)
                own.took_save(TIMEOUT)
                with own.during("save"):
                    time.sleep(LONG)
            elif case in LIMITS:  # in a debugger
                own.enter("forward", 1)
                time.sleep(LONG)
        if number == 2 and case == "disk" and rendezvous.rank == culprit:  # writes in the background in steps 2 to 4
            os.mkfifo(output / "fifo")
            saves.append(Work(lambda: (output / "fifo").open("w"), in_thread=True))  # returns when somebody reads
        if number == 1 and case == "starts slowly" and rendezvous.rank == culprit:
            time.sleep(LONG)
        if number == 5 and case == "steps are long" and rendezvous.rank == culprit:
            time.sleep(LONG)
        if number < 5 and case == "steps are long":
            time.sleep(0.5)
        if number > 5 and rendezvous.world_size == 1:
            wait_for_data()  # a rank alone goes on when a signal ends its sleep
        own.enter("agreement")
        if rendezvous.world_size > 1:
            dist.barrier()
        own.took_step(time.perf_counter() - began)

    def main():
        rendezvous.agree(lambda: None, lambda found: {})
        with (
            Liveness(rendezvous, seconds=30.0) as liveness,
            Watch(rendezvous, LIMITS.get(case, TIMEOUT), output, liveness),
        ):
            dist.init_process_group("gloo")
            for number in range(1, 11):
                step(progress.of_this_process(), number)
        return 0

    run_and_exit(main)


@pytest.fixture
def end(tmp_path):
    def start_and_end(case, ranks):
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(ranks)}
        processes = [
            Forked(
                tmp_path / str(rank), be_a_rank, case, tmp_path,
                environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(ranks)
        ]  # fmt: skip
        return [process.status() for process in processes], [process.stderr for process in processes]

    return start_and_end


def stacks(output: Path, rank: int) -> str:
    (directory,) = (output / "hangs").iterdir()
    return (directory / f"rank-{rank:05d}.txt").read_text()


@pytest.mark.parametrize(
    ("case", "ranks", "where", "function"),
    [
        ("data", 3, "phase data of step 5; 2 other ranks wait for it in collective", "in wait_for_data"),
        ("stopped", 3, "phase backward of step 5, micro-step 2; its process is stopped; 2 other ranks", "in step"),
        ("lock", 2, "phase forward of step 5, micro-step 1; 1 other rank waits", "in hold_the_lock"),
        ("disk", 2, "phase save of step 5; 1 other rank waits", "in step"),
        ("mutex", 2, "phase forward of step 5, micro-step 1; 1 other rank waits", "in hold_the_lock_for_ever"),
        ("lock", 1, "phase forward of step 5, micro-step 1\n", "in hold_the_lock"),
    ],
)
def test_the_rank_that_does_not_come_is_named(end, tmp_path, case, ranks, where, function):
    statuses, errors = end(case, ranks)
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


@pytest.mark.parametrize("case", ["has reasons", "starts slowly", "steps are long", *LIMITS])
def test_a_long_wait_with_a_reason_is_no_hang(end, tmp_path, case):
    assert end(case, 2) == ([0, 0], ["", ""])
    assert not (tmp_path / "hangs").exists()
