"""Ranks that are lost, fail or hang: watches in this process, then real processes without a model."""

import argparse
import contextlib
import ctypes
import hashlib
import hmac
import os
import re
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from torch.distributed import TCPStore

from pipeline.distributed import guard, progress, watch
from pipeline.distributed.channel import Channel
from pipeline.distributed.exits import ExitNotice, run_and_exit
from pipeline.distributed.progress import Report, find_hanging
from pipeline.distributed.rendezvous import SECRET_FILE, Rendezvous, reserve_port
from pipeline.distributed.watch import Watch
from pipeline.run import launch
from tests.pipeline.workers.forked import Forked

HOST, HOSTS, HANG_SECONDS = os.uname().nodename, ["a", "b", "c"], 5.0
WORKS = Report("backward", 5, 1, collectives=40, limit=60.0)


def connect():
    """Both ends of a channel, greeted."""
    ends = [Channel(end, b"key", is_server=bool(number)) for number, end in enumerate(socket.socketpair())]
    assert ends[0].receive() == ends[1].receive() == {"kind": "greeting"}
    return ends


def make_watch(rank, *others, hang_timeout=60.0):
    """The watch of a rank of three, and the other ranks' ends of its channels."""
    own, far = zip(*(connect() for _ in others))
    rendezvous = SimpleNamespace(rank=rank, hosts=HOSTS, channels=dict(zip(others, own)))
    return Watch(rendezvous, Path("run"), 30.0, hang_timeout), far


def said(end):
    """What has come by now."""
    messages = []
    with selectors.DefaultSelector() as selector, contextlib.suppress(EOFError):
        selector.register(end.connection, selectors.EVENT_READ)
        while selector.select(0):
            messages.append(end.receive())
    return [message for message in messages if message["kind"] != "report"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EOFError(), "its process ended without notice"),
        (ConnectionResetError(104, "reset"), "its process ended without notice"),
        (TimeoutError(110, "Connection timed out"), "its host did not answer for 30 s ([Errno 110] Connection timed"),
        (ValueError("a line is too long"), "its connection carries something else (a line is too long)"),
    ],
)
def test_a_lost_rank_is_named_and_ends_the_others(monkeypatch, error, reason):
    judging, (_, third) = make_watch(0, 1, 2)
    monkeypatch.setattr(judging._channels[1], "receive", lambda: (_ for _ in ()).throw(error))
    assert not judging._hear(1)
    assert judging._ending.status == 69
    assert judging._ending.line.startswith(f"lost rank 1 on host b: {reason}")
    assert judging._ending.line.endswith(watch.ADVICE)
    assert said(third) == [{"kind": "leave", "notice": [*judging._ending]}]


@pytest.mark.parametrize(("rank", "local_rank", "speaks"), [(1, "0", True), (1, "1", True), (2, "2", False)])
def test_of_rank_0_s_host_rank_1_says_that_rank_0_is_lost(monkeypatch, rank, local_rank, speaks):
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    watching, (first,) = make_watch(rank, 0)
    first.connection.close()
    assert not watching._hear(0)
    assert watching._ending.line.startswith("lost rank 0 on host a: its process ended")
    assert watching._speaks is speaks


def test_a_rank_that_leaves_with_a_status_ends_the_others_and_one_that_is_done_does_not():
    judging, (second, third) = make_watch(0, 1, 2)
    second.send("leave", notice=ExitNotice(0))
    assert not judging._hear(1)
    assert judging._ending is None
    notice = ExitNotice(2, "rank 2 on host c: no such file", 2.0)
    third.send("leave", notice=notice)
    began = time.monotonic()
    assert not judging._hear(2)
    assert (judging._ending, said(second)) == (notice, [{"kind": "leave", "notice": [*notice]}])
    assert judging._ends_at >= began + 2.0
    later = ExitNotice(69, "another one")
    second.send("leave", notice=later)
    judging._hear(1)
    assert judging._ending == notice, "the first cause is the cause"


def test_ranks_that_hang_by_their_reports_are_named(monkeypatch):
    judging, (second, third) = make_watch(0, 1, 2)
    own = progress.get_progress()
    monkeypatch.setattr(own, "report", lambda idle: WORKS._replace(idle=idle))
    for end, report in ((second, WORKS), (third, WORKS._replace(phase="data", collectives=39))):
        end.send("report", report=report)
    for rank in (1, 2):
        assert judging._hear(rank)
    judging._look(1.0)
    for _ in range(59):
        judging._look(1.0)
        judging._reports |= {rank: report._replace(silent=0.0) for rank, report in judging._reports.items()}
    assert judging._ending is None
    judging._look(1.0)
    status, line, grace, stacks = judging._ending
    assert (status, grace) == (69, 0.0)
    assert line.startswith(
        "rank 2 on host c hangs: no progress for 61 s in phase data of step 5, micro-step 1; 2 other"
    )
    assert stacks.startswith(f"{Path.cwd()}/run/hangs/")
    assert stacks.endswith("-step-5")
    assert f"; the stacks are in {stacks}; " in line
    assert len(said(second)) == len(said(third)) == 1


def test_a_rank_that_sends_nothing_does_not_run_whatever_its_phase_is():
    judging, _ = make_watch(0, 1)
    compiles = Report("compilation", 1, 0, 7, limit=1800.0, idle=100.0)
    assert judging._age(compiles, 60.0) == compiles._replace(idle=160.0, silent=60.0)
    late = judging._age(compiles, 61.0)
    assert (late.limit, late.silent) == (60.0, 61.0)
    assert find_hanging({0: compiles._replace(collectives=8), 1: late}) == [1]
    assert judging._age(compiles._replace(phase="start"), 600.0).limit == 1800.0


def test_a_rank_0_that_sends_nothing_is_named_and_one_that_only_waits_is_not():
    watching, (first,) = make_watch(1, 0)
    for _ in range(3):
        watching._look(50.0)
    assert watching._ending is None, "it has not begun"
    first.send("report", report=WORKS._replace(idle=1000.0))
    assert watching._hear(0)
    watching._look(60.0)
    assert watching._ending is None
    watching._look(1.0)
    assert watching._ending.line.startswith(
        "rank 0 on host a hangs: no progress for 1061 s in phase backward of step 5"
    )
    assert watching._speaks


def test_without_a_limit_nothing_hangs():
    judging, (second,) = make_watch(0, 1, hang_timeout=0.0)
    second.send("report", report=WORKS)
    judging._hear(1)
    judging._look(1e6)
    assert judging._ending is None
    assert not Watch(SimpleNamespace(rank=0, hosts=["a"], channels={}), Path("run"), 30.0, 0.0)._is_needed


def test_ranks_that_leave_their_watch_end_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(Channel, "watch_host", lambda channel, seconds: None)  # of TCP
    watches = [
        Watch(SimpleNamespace(rank=rank, hosts=HOSTS[:2], channels={1 - rank: end}), tmp_path, 30.0, 1000.0)
        for rank, end in enumerate(connect())
    ]
    with watches[0], watches[1]:
        assert progress.get_progress().hang_timeout == 1000.0
        assert all(watching._thread.is_alive() and watching._guard.poll() is None for watching in watches)
    for watching in watches:
        assert not watching._thread.is_alive()
        assert (watching._ending, watching._guard.poll()) == (None, 0)


def test_a_rank_that_raises_ends_with_the_status_of_its_notice(monkeypatch, capfd):
    monkeypatch.setattr(Channel, "watch_host", lambda channel, seconds: None)  # of TCP
    raising, (second,) = make_watch(0, 1)
    with pytest.raises(SystemExit) as ended, raising:
        raise ValueError("row 7 is odd")
    assert ended.value.code == 1
    assert capfd.readouterr().err.endswith("ValueError: row 7 is odd\n")
    (leaves,) = said(second)
    assert leaves["notice"][:2] == [1, "rank 0 on host a failed: ValueError: row 7 is odd"]


def test_time_in_which_the_thread_does_not_run_does_not_count(monkeypatch):
    judging, _ = make_watch(0, 1)
    clock, looked = iter(range(0, 10**6, 1000)), []
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))

    def look(seconds):
        looked.append(seconds)
        judging._left = ExitNotice(0)

    monkeypatch.setattr(judging, "_look", look)
    with selectors.DefaultSelector() as selector:
        judging._watch(selector)
    assert looked == [3.0]


def test_a_rank_is_idle_since_its_last_note():
    judging, _ = make_watch(0, 1)
    judging._report(0.0)
    assert [judging._report(seconds).idle for seconds in (5.0, 6.0)] == [5.0, 11.0]
    progress.get_progress().beat()
    assert judging._report(7.0).idle == 0.0


def test_a_mistake_ends_torchrun_s_agent_as_well(monkeypatch):
    ended = []
    monkeypatch.setattr(watch.launcher, "end_agent", lambda: ended.append("agent"))
    monkeypatch.setattr(os, "_exit", ended.append)
    for status in (2, 69):
        judging, _ = make_watch(0, 1)
        judging._end_job(ExitNotice(status, "no data"))
        judging._end_rank()
    assert ended == ["agent", 2, 69]


class Ended(BaseException):
    """The process would have ended with this status."""


def test_the_end_of_a_rank_says_why_and_writes_its_stacks(monkeypatch, tmp_path, capfd):
    def end(status):
        raise Ended(status)

    monkeypatch.setattr(os, "_exit", end)
    judging, _ = make_watch(0, 1)
    judging._end_job(ExitNotice(69, "rank 1 hangs", 0.0, str(tmp_path / "hangs" / "now")))
    with pytest.raises(Ended, match="69"), selectors.DefaultSelector() as selector:
        judging._watch(selector)
    assert capfd.readouterr().err == "error: rank 1 hangs\n"
    stacks = (tmp_path / "hangs" / "now" / "rank-00000.txt").read_text()
    assert stacks.startswith("rank 0 on host a ")
    assert "test_watch.py" in stacks
    judging, _ = make_watch(0, 1)
    monkeypatch.setattr(judging, "_look", lambda seconds: 1 / 0)
    with pytest.raises(Ended, match="69"):
        judging._run()
    assert capfd.readouterr().err.startswith("error: the watch of rank 0 on host a failed (ZeroDivisionError")


@pytest.fixture
def start(tmp_path):
    def start_ranks(work, case, ranks):
        secret = tmp_path / "secret"
        secret.write_text("0123456789abcdef")
        secret.chmod(0o600)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(ranks)}
        shared[SECRET_FILE] = str(secret)
        own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        return [Forked(tmp_path / each["RANK"], work, case, tmp_path, environment=shared | each) for each in own]

    return start_ranks


def ends(processes):
    """Status and error output of each process."""
    return [process.status() for process in processes], [process.stderr for process in processes]


def wait_for_each_other(_, output):
    """What each of the processes does: they meet, and wait for each other once."""
    import torch.distributed as dist

    rendezvous = Rendezvous()

    def main():
        rendezvous.agree(lambda: None, lambda found: {})
        with Watch(rendezvous, output, host_timeout=3.0, hang_timeout=0.0):
            dist.init_process_group("gloo")
            print("begun", flush=True)
            dist.barrier()
            time.sleep(600)

    run_and_exit(main)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_is_killed_ends_the_others(start, lost):
    processes = start(wait_for_each_other, None, 3)
    for process in processes:
        process.has_said("begun\n")
    processes[lost].process.kill()
    statuses, errors = ends(processes)
    assert statuses == [-signal.SIGKILL if rank == lost else 69 for rank in range(3)]
    first_left = errors[1 if lost == 0 else 0]
    assert first_left.startswith(f"error: lost rank {lost} on host {HOST}: its process ended")
    assert sum(error.count("\n") for error in errors) == 1


@pytest.mark.slow
def test_no_command_line_shows_the_secret_or_the_key(start, tmp_path):
    """As `ps` shows them to everybody on the host."""
    ranks = start(wait_for_each_other, None, 2)
    for rank in ranks:
        rank.has_said("begun\n")
    store = TCPStore("127.0.0.1", int(ranks[0].environment["MASTER_PORT"]), is_master=False)
    secret = (tmp_path / "secret").read_bytes()
    key = hmac.digest(secret, store.get("job/1"), hashlib.sha256)
    lines = {process.pid: "\0".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])}
    for rank in ranks:
        assert any(guard.__file__ in line and f"\0{rank.process.pid}\0" in line for line in lines.values())
        rank.process.kill()
    assert not [line for line in lines.values() for hidden in (secret.decode(), key.hex()) if hidden in line]


def lack_memory(case, output):
    """What each of the processes does: a command for which rank 1 has too little memory."""

    def fail(moment):
        if os.environ["RANK"] == "1" and moment == case[0]:
            raise case[1]

    def work():
        fail("work")
        time.sleep(600)

    def prepare(args, world_size):
        fail("check")
        return launch.Prepared(output, {}, work, host_timeout=60.0, hang_timeout=0.0)

    sys.modules["made_up"] = SimpleNamespace(prepare=prepare)
    run_and_exit(lambda: launch.run_command(lambda words: argparse.Namespace(mirror=None), "made_up", []))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        ("check", ImportError("a.so: failed to map segment from shared object")),
        ("work", RuntimeError("DefaultCPUAllocator: can't allocate memory")),
    ],
    ids=["import", "torch"],
)
def test_too_little_memory_in_a_rank_is_one_line(start, case):
    statuses, errors = ends(start(lack_memory, case, 2))
    assert statuses == [2, 2]
    (line,) = [line for error in errors for line in error.splitlines()]
    assert line.startswith(f"error: rank 1 on host {HOST}: not enough memory (")


def make_steps(case, output):
    """What each of the processes does: ten steps with a collective each; in the fifth, ranks 1 and 2 hang."""
    import torch.distributed as dist

    rendezvous = Rendezvous()

    def fail(own):
        own.enter("backward", 2)
        time.sleep(HANG_SECONDS / 15)  # longer than between two reports
        if rendezvous.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:  # locks a mutex twice in compiled code: no signal and no other thread of this process ends that
            mutex, libc = ctypes.create_string_buffer(128), ctypes.PyDLL(None)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)

    def main():
        rendezvous.agree(lambda: None, lambda found: {})
        with Watch(rendezvous, output, host_timeout=60.0, hang_timeout=HANG_SECONDS):
            dist.init_process_group("gloo")
            own = progress.get_progress()
            for own.step in range(1, 11):
                own.enter("data")
                began = time.perf_counter()
                if own.step == 5 and rendezvous.rank:
                    fail(own)
                own.enter("agreement")
                dist.barrier()
                own.took_step(time.perf_counter() - began)
        return 0

    run_and_exit(main)


@pytest.mark.slow
def test_the_ranks_that_do_not_come_are_named(start, tmp_path):
    """Rank 1 is stopped; rank 2 holds Python's lock, so nothing but a kill ends it."""
    statuses, errors = ends(start(make_steps, None, 3))
    assert statuses == [69, 69, -signal.SIGKILL]
    (line,) = {line for error in errors for line in error.splitlines()}
    assert re.match(
        rf"error: rank 1 on host {HOST} hangs: no progress for \d+ s in phase backward of step 5, "
        r"micro-step 2; no thread of it runs: ",
        line,
    )
    assert "ranks that hang as well: 2" in line
    assert f"; the stacks are in {tmp_path}/hangs/" in line
    stacks = {path.name: path.read_text() for path in (tmp_path / "hangs").glob("*/*")}
    assert stacks.keys() == {"rank-00000.txt", "rank-00001.txt"}
    assert "in barrier" in stacks["rank-00000.txt"]
    assert "in make_steps" in stacks["rank-00001.txt"]
