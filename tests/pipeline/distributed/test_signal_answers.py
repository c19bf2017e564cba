"""A stop signal is answered at once, whatever the main thread does."""

import ctypes
import os
import signal
import time

import pytest

from pipeline.distributed.hangs.progress import Progress
from pipeline.distributed.signal_answers import what_follows
from tests.pipeline.workers.forked import Forked


@pytest.mark.parametrize(
    ("step", "phase", "words"),
    [
        (0, "start", "ending before the first step"),
        (25, "data", "finishing step 25, then saving"),
        (25, "backward", "finishing step 25, then saving"),
        (25, "evaluation", "leaving the evaluation of step 25, then saving"),
        (25, "save", "saving step 25, then ending"),
        (25, "end", "training has ended; finishing what follows it"),
    ],
)
def test_the_answer_says_what_follows(step, phase, words):
    own = Progress()
    own.step = step
    own.enter(phase)
    assert what_follows(own, saves=True) == words


def test_a_command_that_saves_nothing_does_not_say_so():
    own = Progress()
    own.step = 25
    own.enter("forward", 1)
    assert what_follows(own, saves=False) == "finishing step 25, then ending"


def be_busy(rank):
    """Waits in compiled code that no signal interrupts: a mutex that it has locked already."""
    from pipeline.distributed.exits import StopSignals
    from pipeline.distributed.hangs import progress

    os.environ["RANK"] = rank
    StopSignals()
    own = progress.of_this_process()
    own.step = 25
    own.enter("forward", 1)
    mutex, libc = ctypes.create_string_buffer(128), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    print("begun", flush=True)
    libc.pthread_mutex_lock(mutex)


@pytest.mark.slow
def test_ctrl_c_is_answered_and_the_second_one_ends_a_busy_process(tmp_path):
    processes = [Forked(tmp_path / rank, be_busy, rank) for rank in "01"]
    for process in processes:
        process.has_said("begun\n")
        os.kill(process.process.pid, signal.SIGINT)
    processes[0].has_said("finishing step 25, then saving; again to quit now\n")
    for process in processes:
        os.kill(process.process.pid, signal.SIGTERM)  # a launcher adds it
        while process.process.is_alive():  # the kernel drops a signal while the same one still waits
            os.kill(process.process.pid, signal.SIGINT)
            process.process.join(0.2)
    assert [process.status() for process in processes] == [130, 130]
    assert processes[0].stdout.count("saving") == 1
    assert processes[1].stdout == "begun\n"


def be_told_once(output):
    from pipeline.distributed.exits import StopSignals

    stop = StopSignals()
    print("begun", flush=True)
    deadline = time.monotonic() + 100
    # Another thread writes the answer, so the process must not end before it is there.
    while (stop.received is None or "step" not in output.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_scheduler_s_signal_is_answered_without_the_words_for_a_person(tmp_path):
    process = Forked(tmp_path / "process", be_told_once, tmp_path / "process.out")
    process.has_said("begun\n")
    os.kill(process.process.pid, signal.SIGUSR1)
    process.has_said("ending before the first step\n")
    assert process.status() == 0
    assert "again" not in process.stdout
