"""A stop signal is answered at once, and a rank ends with the status that its `main` returns."""

import atexit
import os
import signal
import sys
from types import SimpleNamespace

import pytest

from common.errors import UserError
from pipeline.distributed.exits import (
    ExitNotice,
    StopSignals,
    describe_end,
    exit_notice,
    run_and_exit,
    say_stopped,
    write_now,
)
from tests.pipeline.workers.forked import Forked, lock_for_ever


def leave(body):
    """A process that would abort in its destructors, as a process group does after its peer has exited."""

    def main():
        print("said")
        if body == "exits":
            sys.exit(2)
        if body == "is interrupted":
            signal.raise_signal(signal.SIGINT)
        if body == "fails":
            raise ValueError("broken")
        return body

    atexit.register(os.abort)
    run_and_exit(main)


@pytest.mark.parametrize(
    ("body", "status", "said_at_the_end"),
    [
        (75, 75, ""),
        ("exits", 2, ""),
        ("is interrupted", 130, "interrupted"),
        ("fails", 1, "ValueError: broken"),
    ],
)
def test_nothing_that_is_destroyed_at_the_end_changes_the_status(tmp_path, body, status, said_at_the_end):
    process = Forked(tmp_path / "process", leave, body)
    assert (process.wait(), process.stdout) == (status, "said\n")
    assert process.stderr.endswith(said_at_the_end + "\n") if said_at_the_end else not process.stderr


@pytest.mark.parametrize(
    ("error", "notice"),
    [
        (None, ExitNotice(0)),
        (UserError("no data"), ExitNotice(2, "rank 1: no data", 2.0)),  # the others may find the same mistake meanwhile
        (KeyboardInterrupt(), ExitNotice(130, "rank 1 was interrupted")),
        (ValueError("row 7\nis odd"), ExitNotice(1, "rank 1 failed: ValueError: row 7 is odd")),
    ],
    ids=repr,
)
def test_how_a_rank_leaves_says_how_the_others_end(error, notice):
    assert exit_notice("rank 1", error) == notice


def stop_unread():
    """A rank that is stopped when nobody reads its output any more."""

    def main():
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)
        StopSignals()._print_answer(signal.SIGINT)
        say_stopped(signal.SIGINT, 7)
        return 75

    run_and_exit(main)


def be_stopped(numbers):
    """A rank that gets these signals. Another rank of the job gets SIGTERM only."""

    def main():
        signals = StopSignals()
        for number in numbers:
            signal.raise_signal(number)
        others = [float(number == signal.SIGTERM) for number in signals.NUMBERS]
        say_stopped(signals.first([sum(pair) for pair in zip(signals.flags(), others)]), 7)
        return 75

    run_and_exit(main)


@pytest.mark.parametrize(
    ("numbers", "name"),
    [
        ((signal.SIGINT, signal.SIGTERM), "Ctrl-C"),  # the launcher adds the second one
        ((signal.SIGTERM, signal.SIGUSR1), "SIGTERM"),
        ((), "SIGTERM"),
    ],
)
def test_ctrl_c_is_named_even_if_the_launcher_adds_a_signal(tmp_path, numbers, name):
    process = Forked(tmp_path / "process", be_stopped, numbers)
    assert process.wait() == 75
    assert f"stopped by {name} and saved at step 7;" in process.stdout


def test_a_stop_after_which_nobody_reads_keeps_its_status(tmp_path):
    process = Forked(tmp_path / "process", stop_unread)
    assert (process.wait(), process.stderr) == (75, "")


def test_what_is_written_now_is_escaped_and_what_cannot_be_written_raises_nothing():
    reader, writer = os.pipe()
    write_now(writer, "lost \udcff.txt\n")  # a name that is not UTF-8
    assert os.read(reader, 100) == b"lost \\udcff.txt\n"
    os.close(reader)
    write_now(writer, "nobody reads\n")
    os.dup2(os.open("/dev/full", os.O_WRONLY), writer)
    write_now(writer, "no room\n")
    os.close(writer)


@pytest.mark.parametrize(
    ("step", "phase", "line"),
    [
        (0, "forward", "ending before the first step"),
        (7, "scoring", "finishing the evaluation of step 7, then saving"),
        (7, "end", "training has ended; please wait"),
    ],
)
def test_what_a_stop_still_waits_for(step, phase, line):
    assert describe_end(SimpleNamespace(step=step, phase=phase)) == line


def be_busy(rank):
    """Waits in compiled code that no signal interrupts."""
    from pipeline.distributed import progress
    from pipeline.distributed.exits import StopSignals

    os.environ["RANK"] = rank
    StopSignals()
    own = progress.get_progress()
    own.step = 25
    own.enter("forward", 1)
    print("begun", flush=True)
    lock_for_ever()


@pytest.mark.slow
def test_ctrl_c_is_answered_and_the_second_one_ends_a_busy_process(tmp_path):
    processes = [Forked(tmp_path / rank, be_busy, rank) for rank in "01"]
    for process in processes:
        process.has_said("begun\n")
        process.send_signal(signal.SIGINT)
    processes[0].has_said("finishing the step, then saving; again to quit now\n")
    for process in processes:
        process.send_signal(signal.SIGTERM)  # a launcher adds it
        while process.poll() is None:  # the kernel drops a signal while the same one still waits
            process.send_signal(signal.SIGINT)
            process.process.join(0.2)
    assert [process.wait() for process in processes] == [130, 130]
    assert [process.stderr for process in processes] == ["interrupted\n", ""]
    assert processes[0].stdout.count("saving") == 1
    assert processes[1].stdout == "begun\n"
