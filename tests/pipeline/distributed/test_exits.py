"""A rank ends with the status that its `main` returns."""

import atexit
import os
import signal
import sys

import pytest

from pipeline.distributed import signal_answers
from pipeline.distributed.exits import StopSignals, run_and_exit, say_stopped
from tests.pipeline.workers.forked import Forked


def leave(body):
    """A process that would abort in its destructors, as a process group does after its peer has exited."""

    def main():
        print("said")
        if body == "exits":
            sys.exit(2)
        if body == "exits with nothing":
            sys.exit()
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
        (0, 0, ""),
        (75, 75, ""),
        ("exits", 2, ""),
        ("exits with nothing", 0, ""),
        ("is interrupted", 130, "interrupted"),
        ("fails", 1, "ValueError: broken"),
    ],
)
def test_nothing_that_is_destroyed_at_the_end_changes_the_status(tmp_path, body, status, said_at_the_end):
    process = Forked(tmp_path / "process", leave, body)
    assert (process.status(), process.stdout) == (status, "said\n")
    assert process.stderr.endswith(said_at_the_end + "\n") if said_at_the_end else not process.stderr


@pytest.mark.parametrize("between", [[], [signal.SIGTERM]], ids=["alone", "under a launcher, which adds SIGTERM"])
def test_one_interrupt_is_noted_and_the_second_does_not_wait(between):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    try:
        stop = StopSignals()
        for number in (signal.SIGINT, *between):
            signal.raise_signal(number)
            assert stop.received == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def stop_unread(answers):
    """A rank that is stopped when nobody reads its output any more."""

    def main():
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)
        if answers:
            signal_answers.of_this_process()._answer(signal.SIGINT)
        say_stopped(signal.SIGINT, 7)
        return 75

    run_and_exit(main)


@pytest.mark.parametrize("answers", [True, False])
def test_a_stop_after_which_nobody_reads_keeps_its_status(tmp_path, answers):
    process = Forked(tmp_path / "process", stop_unread, answers)
    assert (process.status(), process.stderr) == (75, "")


def log_to_a_full_disk(ends_full):
    def main():
        place = os.dup(1)
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        print("step 1: there is no space for this line", flush=True)
        print("this waits in the buffer")
        if not ends_full:
            sys.stdout.flush()
            os.dup2(place, 1)  # somebody has made room
            print("step 3")
        return 75

    run_and_exit(main)


@pytest.mark.parametrize("ends_full", [True, False])
def test_a_full_disk_costs_lines_and_neither_the_run_nor_its_status(tmp_path, ends_full):
    process = Forked(tmp_path / "process", log_to_a_full_disk, ends_full)
    assert (process.status(), process.stderr) == (75, "")
    assert process.stdout == ("" if ends_full else "step 3\n")
