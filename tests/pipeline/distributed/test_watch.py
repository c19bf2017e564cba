"""Ranks that are lost, fail or hang, and what ranks exchange on the host: real processes without a model."""

import argparse
import os
import re
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import run_and_exit
from pipeline.distributed.rendezvous import Rendezvous, reserve_port
from pipeline.distributed.watch import TICK, Watch
from pipeline.run import launch, start
from tests.pipeline.workers import processes
from tests.pipeline.workers.forked import Forked, lock_for_ever

pytestmark = pytest.mark.slow

HOST = os.uname().nodename
RANKS, SECONDS = 3, 5.0


@pytest.fixture
def ends(tmp_path):
    """Starts ranks that do `work(case, tmp_path)`, and returns the status and the error lines of each.

    The rank `stuck` cannot end itself.
    """

    def run(work, case, ranks=RANKS, stuck=None):
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(ranks)}
        own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        processes = [Forked(tmp_path / each["RANK"], work, case, tmp_path, environment=shared | each) for each in own]
        for number, process in enumerate(processes):
            if number != stuck:
                process.wait()
        if stuck is not None:  # as a launcher does once the others have ended
            processes[stuck].kill()
        statuses = [process.wait() for process in processes]
        return statuses, [line for process in processes for line in process.stderr.splitlines()]

    return run


FAULTS: dict[str, Callable[[], object]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hangs": lock_for_ever,
}


def be_watched(output: Path, work: Callable[[int], None], kind: type[Watch] = Watch, hang_seconds: float = 0.0) -> None:
    """Meets the other ranks, calls `work` with the own rank inside the watch, and ends this process."""
    rendezvous = Rendezvous()

    def main() -> int:
        rendezvous.agree(lambda: None, lambda found: {})
        with kind(rendezvous, output, SECONDS, hang_seconds):
            work(rendezvous.rank)
        return 0

    run_and_exit(main)


def make_steps(case: tuple[str, int] | None, output: Path) -> None:
    """What each of the processes does: ten steps with a collective each; in the fifth, one rank has a fault."""
    import torch.distributed as dist

    def work(rank: int) -> None:
        dist.init_process_group("gloo")
        own = progress.get_progress()
        for own.step in range(1, 11):
            own.enter("data")
            began = time.perf_counter()
            if case is not None and (own.step, rank) == (5, case[1]):
                own.enter("backward", 2)
                time.sleep(3 * TICK)  # until the others have read it
                FAULTS[case[0]]()
            own.enter("agreement")
            dist.barrier()
            own.took_step(time.perf_counter() - began)

    be_watched(output, work, hang_seconds=SECONDS)


def test_ranks_that_leave_their_watch_end_nothing(ends):
    assert ends(make_steps, None) == ([0] * RANKS, [])


ENDED, SILENT = (
    "its process ended without notice",
    r"no sign of life for \d s: .*the process is stopped or holds Python's",
)


@pytest.mark.parametrize(
    ("fault", "rank", "reason"),
    [
        ("killed", 0, ENDED),
        ("killed", 2, ENDED),
        ("stopped", 0, SILENT),  # whose process serves the store
        ("stopped", 1, SILENT),
    ],
)
def test_a_lost_rank_is_named_and_ends_the_others(ends, fault, rank, reason):
    statuses, lines = ends(make_steps, (fault, rank), stuck=None if fault == "killed" else rank)
    assert statuses == [-signal.SIGKILL if number == rank else 69 for number in range(RANKS)]
    (line,) = [line for line in lines if line.startswith("error: ")]
    assert re.match(rf"error: lost rank {rank} on host {HOST}: {reason}", line), line


def test_a_rank_that_hangs_is_named_and_all_write_their_stacks(ends, tmp_path):
    statuses, lines = ends(make_steps, ("hangs", 1))
    assert statuses == [69] * RANKS
    (line,) = lines
    beginning = f"error: rank 1 on host {HOST} hangs: no progress for "
    assert re.match(rf"{beginning}\d s in phase backward of step 5, micro-step 2; 2 other ranks wait for it; ", line)
    assert f"; the stacks are in {tmp_path}/hangs/" in line
    stacks = {path.name: path.read_text() for path in (tmp_path / "hangs").glob("*/*")}
    assert stacks.keys() == {f"rank-{rank:05d}.txt" for rank in range(RANKS)}
    assert "in barrier" in stacks["rank-00000.txt"]
    assert "in lock_for_ever" in stacks["rank-00001.txt"]


class SlowWatch(Watch):
    """Each look takes three ticks."""

    def _hear(self) -> None:
        time.sleep(2 * TICK)
        super()._hear()


class SilentWatch(Watch):
    def _look(self) -> None:
        self._rounds += 1


def break_off(case: str, output: Path) -> None:
    """The collective of rank 0 breaks off: rank 1 is stopped, or has written nothing since its start."""

    def work(rank: int) -> None:
        if case == "stopped":
            progress.get_progress().enter("backward", 2)
            time.sleep(8 * TICK)  # until both have read it
            if rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
        else:
            progress.get_progress().took_step(0.1)
            time.sleep(600 * rank)
        raise RuntimeError("gloo: Connection closed by peer")

    be_watched(output, work, SlowWatch if case == "stopped" else SilentWatch if os.environ["RANK"] == "1" else Watch)


@pytest.mark.parametrize("case", ["stopped", "silent"])
def test_a_lost_rank_is_named_by_a_slow_watch_and_where_it_was_never_heard_of(ends, case):
    statuses, lines = ends(break_off, case, 2, stuck=1)
    assert statuses == [69, -signal.SIGKILL]
    errors = [line for line in lines if line.startswith("error: ")]
    assert [line for line in errors if line.startswith(f"error: lost rank 1 on host {HOST}: ")]
    assert len(errors) == 1 or case == "silent"


def fail(case: tuple[int, Exception], output: Path) -> None:
    """What each of the processes does: a command in which one rank fails."""

    def train_all(flags: Any, tasks: Any, facts: Any) -> int:
        if os.environ["RANK"] == str(case[0]):
            raise case[1]
        time.sleep(600)
        return 0

    flags = argparse.Namespace(output=output, deterministic=False, host_timeout=60.0, hang_timeout=0.0)
    with (
        mock.patch.object(start, "check", return_value={}),
        mock.patch.object(start, "is_finished", return_value=False),
        mock.patch.object(start, "train_all", train_all),
    ):
        run_and_exit(lambda: launch.run_command(lambda words: flags, lambda *_: [], []))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_raises_ends_the_others_with_its_line(ends, rank):
    statuses, lines = ends(fail, (rank, ValueError("row 7 is odd")), 2)
    assert statuses == [1, 1]
    assert lines.count("ValueError: row 7 is odd") == 1, "the end of the traceback"
    assert lines.count(f"error: rank {rank} on host {HOST} failed: ValueError: row 7 is odd") == 1


WORLD = 3


def exchange() -> list[dict[str, Any]]:
    """What each of the ranks has found."""
    control = ControlGroup()
    group = control._group
    found: dict[str, Any] = {"limit": group._get_backend(torch.device("cpu")).options._timeout}
    unpickle = dist.distributed_c10d._tensor_to_object
    with mock.patch.object(dist.distributed_c10d, "_tensor_to_object", side_effect=unpickle) as received:
        found["gathered"] = control.gather(f"of rank {control.rank}")
        found["received"] = received.call_count
    found["of rank 0"] = control.on_rank_0(lambda: control.rank + 7)

    def fail(rank: int) -> int:
        if control.rank == rank:
            raise OSError("no space")
        return control.rank

    for name, work in (
        ("on rank 0", lambda: control.on_rank_0(lambda: fail(0), (OSError,), ValueError)),
        ("on one", lambda: control.all_or_raise(lambda: fail(1), (OSError,), ValueError)),
    ):
        try:
            work()
        except ValueError as error:
            found[name] = str(error)
    everything: list[Any] = [None] * WORLD
    dist.all_gather_object(everything, found)
    return everything


def test_who_receives_who_fails_and_how_long_a_wait_may_last(tmp_path):
    exchanged = processes.run(WORLD, exchange, scratch=tmp_path)
    assert [found["gathered"] for found in exchanged] == [[f"of rank {rank}" for rank in range(WORLD)], None, None]
    assert [found["received"] for found in exchanged] == [WORLD, 0, 0], "only rank 0 receives what is gathered"
    assert [found["of rank 0"] for found in exchanged] == [7] * WORLD
    assert [(found["on rank 0"], found["on one"]) for found in exchanged] == [("no space", "no space")] * WORLD
    terabyte = timedelta(seconds=1e12 / 100e6)  # all shards from a slow disk
    assert all(found["limit"] > terabyte for found in exchanged)
