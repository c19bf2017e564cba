"""Ranks that are lost, fail, hang or never come: real processes, without a model."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from common.errors import UserError
from pipeline.distributed import progress, watcher
from pipeline.distributed.exits import run_and_exit
from pipeline.distributed.rendezvous import SECRET_FILE, Rendezvous, reserve_port
from pipeline.distributed.watch import Watch
from tests.pipeline.workers.forked import Forked

pytestmark = pytest.mark.slow

HOST = os.uname().nodename
HANG_SECONDS = 5.0


@pytest.fixture
def start(tmp_path):
    def start_ranks(work, case, ranks, absent=(), seconds=200.0):
        secret = tmp_path / "secret"
        secret.write_text("0123456789abcdef")
        secret.chmod(0o600)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(ranks)}
        shared[SECRET_FILE] = str(secret)
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
        if case == "attacked":
            watcher._CONNECT_SECONDS = 600.0  # the attack may take long
        if case == "attacked" and rendezvous.rank == 1:
            while not (output / "attacked").exists():
                time.sleep(0.05)
        if case == "unreachable":  # port 1 of this host is closed
            watcher._CONNECT_SECONDS = 5.0
            rendezvous.ask = lambda name, kind: 1
        with Watch(rendezvous, output, host_timeout=3.0, hang_timeout=0.0):
            dist.init_process_group("gloo")
            print("begun", flush=True)
            if case == "raises" and rendezvous.rank == 1:
                raise ValueError("row 7 is odd")
            if case == "alone" and rendezvous.rank == 1:
                raise UserError("only here")
            if case == "broken":
                if rendezvous.rank == 1:
                    watcher.Watcher.look = lambda self, seconds: 1 / 0
                time.sleep(600)
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
    first_left = errors[1 if lost == 0 else 0]
    assert first_left.startswith(f"error: lost rank {lost} on host {HOST}: its process ended")
    assert sum(error.count("\n") for error in errors) == 1


def test_a_watch_that_fails_ends_the_job(start):
    statuses, errors = ends(start(meet_and_wait, "broken", 2))
    assert statuses == [69, 69]
    assert f"error: the watch of rank 1 on host {HOST} failed (ZeroDivisionError" in errors[1]
    assert f"error: lost rank 1 on host {HOST}: its process ended" in errors[0]


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


@contextlib.contextmanager
def attack(port):
    """Does to rank 0's server what a stranger can who reads the store. Silent connections stay open in the block."""
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=200))
    server = int(store.get("rendezvous/1/server").partition(b" ")[2])
    with contextlib.ExitStack() as opened:
        for said in (b'{"kind": "hello", "rank": 1}\n', b"[" * 60_000 + b"\n", b"x" * 1_000_000, b"\n" * 1000, b""):
            for greeting in (b"", b"0" * 32 + b"\n"):
                stranger = opened.enter_context(socket.create_connection(("127.0.0.1", server), timeout=60))
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(greeting + said)
                    stranger.sendall(b"0" * 64 + b' {"kind": "end", "notice": [1, "forged", 0, ""]}\n')
        silent = [opened.enter_context(socket.create_connection(("127.0.0.1", server), timeout=60)) for _ in range(300)]
        silent[0].settimeout(60)
        while silent[0].recv(64):  # the oldest ones are dropped
            pass
        yield


def test_a_stranger_neither_ends_nor_hangs_a_job(start, tmp_path):
    processes = start(meet_and_wait, "attacked", 2)
    port = int(processes[0].environment["MASTER_PORT"])
    with attack(port):
        (tmp_path / "attacked").touch()
        assert ends(processes) == ([0, 0], ["", ""])


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
    """Locks a mutex twice in compiled code: no signal and no other thread of this process ends that."""
    mutex, libc = ctypes.create_string_buffer(128), ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def make_steps(case, output, seconds):
    """What each of the processes does: ten steps with a collective each, the fifth of which goes as `case` says."""
    import torch.distributed as dist

    rendezvous = Rendezvous()
    culprit = 0 if case == "first" else rendezvous.world_size - 1

    def fail(own):
        if case == "data":
            wait_for_data()
        elif case in ("stopped", "first"):
            own.enter("backward", 2)
            time.sleep(HANG_SECONDS / 15)  # longer than between two reports
            os.kill(os.getpid(), signal.SIGSTOP)
        elif case == "lock":
            own.enter("forward", 1)
            time.sleep(HANG_SECONDS / 15)
            hold_the_lock()
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
                own.enter("agreement")
                dist.barrier()
                own.took_step(time.perf_counter() - began)
        return 0

    run_and_exit(main)


def stacks(output: Path, rank: int) -> str:
    """Without rank 0 each rank finds the hang by itself, maybe in another second, which names the directory."""
    (found,) = (output / "hangs").glob(f"*/rank-{rank:05d}.txt")
    return found.read_text()


@pytest.mark.parametrize(
    ("case", "ranks", "culprit", "where"),
    [
        ("data", 3, 2, "phase data of step 5; 2 other ranks wait for it; "),
        ("data", 1, 0, "phase data of step 5; "),
        ("stopped", 3, 2, "phase backward of step 5, micro-step 2; no thread of it runs: "),
        ("first", 3, 0, "phase backward of step 5, micro-step 2; no thread of it runs: "),
        ("lock", 2, 1, "phase forward of step 5, micro-step 1; no thread of it runs: "),
    ],
)
def test_the_rank_that_does_not_come_is_named(start, tmp_path, case, ranks, culprit, where):
    processes = start(make_steps, case, ranks)
    statuses = [process.status() for process in processes]
    expected = [69] * ranks
    if case == "lock":
        expected[culprit] = -signal.SIGKILL
    else:
        assert ("in wait_for_data" if case == "data" else "in make_steps") in stacks(tmp_path, culprit)
    assert statuses == expected
    said = "".join(process.stderr for process in processes)
    line = rf"error: rank {culprit} on host {HOST} hangs: no progress for \d+ s in {re.escape(where)}"
    assert re.match(line, said), said
    assert len(set(said.splitlines())) == 1
    assert f"; the stacks are in {tmp_path}/hangs/" in said
    for rank in set(range(ranks)) - {culprit}:
        assert "in barrier" in stacks(tmp_path, rank)


def test_a_long_wait_with_a_reason_is_no_hang(start, tmp_path):
    assert ends(start(make_steps, "has reasons", 2)) == ([0, 0], ["", ""])
    assert not (tmp_path / "hangs").exists()
