"""A tracker that fails or hangs does not hold up training."""

import threading

from pipeline.tracking import background
from pipeline.tracking.background import BackgroundTracker
from pipeline.tracking.tracker import Figures, TrackedRun


def figures(step):
    return Figures(step, "train", None, None, {"train/loss": 1.0})


class Tracker:
    """Keeps what it gets, and fails in the methods that it is told."""

    def __init__(self, *failing):
        self.failing, self.steps, self.finished = failing, [], None

    def log(self, figures):
        self.steps.append(figures.step)
        if "log" in self.failing:
            raise ConnectionError("the service\nis away")

    def close(self, finished):
        self.finished = finished
        if "close" in self.failing:
            raise TimeoutError("no answer")


def run_through(tmp_path, tracker, opens=True):
    def open_tracker(run):
        if not opens:
            raise PermissionError("no key for the service")
        return tracker

    tracked = BackgroundTracker("mlflow", open_tracker, TrackedRun(tmp_path, 0))
    for step in (10, 20):
        tracked.log(figures(step))
    tracked.close(finished=True)


def test_a_tracker_gets_everything_in_order(tmp_path, capsys):
    tracker = Tracker()
    run_through(tmp_path, tracker)
    assert tracker.steps == [10, 20]
    assert tracker.finished is True
    assert capsys.readouterr().err == ""


def test_one_that_fails_is_named_once_and_still_gets_what_follows(tmp_path, capsys):
    tracker = Tracker("log", "close")
    run_through(tmp_path, tracker)
    assert tracker.steps == [10, 20]
    assert capsys.readouterr().err == (
        "the tracker mlflow failed, training goes on (metrics.jsonl has everything): "
        "ConnectionError: the service is away\n"
    )


def test_one_that_does_not_open_is_named_once(tmp_path, capsys):
    run_through(tmp_path, Tracker(), opens=False)
    assert capsys.readouterr().err.splitlines() == [
        "the tracker mlflow failed, training goes on (metrics.jsonl has everything): "
        "PermissionError: no key for the service"
    ]


def test_one_that_hangs_holds_up_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(background, "MAX_WAITING", 2)
    answer = threading.Event()

    def open_tracker(run):
        answer.wait()
        return Tracker()

    tracked = BackgroundTracker("wandb", open_tracker, TrackedRun(tmp_path, 0), close_seconds=0.05)
    for step in range(5):
        tracked.log(figures(step))  # returns, although nobody takes them
    tracked.close(finished=False)
    assert capsys.readouterr().err.splitlines() == [
        "the tracker wandb failed, training goes on (metrics.jsonl has everything): 2 records wait for it"
    ]
    answer.set()
