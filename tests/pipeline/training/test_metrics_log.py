"""The metrics of a run on disk, also after a kill in the middle of a line."""

import json
import math
import os
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.training import metrics_log
from pipeline.training.metrics_log import MetricsLog, drop_after


def test_a_resumed_run_writes_no_step_twice(tmp_path):
    first = MetricsLog(tmp_path, 0, enabled=True)
    for step in (10, 20, 30):
        first.log(step, {"loss": float(step)})
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "spl')  # killed here
    time.sleep(1 - time.time() % 1)  # TensorBoard reads files in the order of their names, which have whole seconds
    second = MetricsLog(tmp_path, 20, enabled=True)
    second.log(30, {"loss": 31.0})
    second.log(30, {"loss": 2.0}, "eval")
    second.close()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(record["step"], record["split"], record["loss"]) for record in records] == [
        (10, "train", 10.0),
        (20, "train", 20.0),
        (30, "train", 31.0),
        (30, "eval", 2.0),
    ]
    assert metrics_log.last_record(tmp_path, "eval") == {"step": 30, "split": "eval", "loss": 2.0}
    events = EventAccumulator(str(tmp_path / "tensorboard" / tmp_path.name))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(10, 10), (20, 20), (30, 31)]


def test_a_sync_comes_after_the_records_before_it(tmp_path, monkeypatch):
    log = MetricsLog(tmp_path, 0, enabled=True)
    log.log(10, {"loss": 1.0})
    durable = {}
    monkeypatch.setattr(os, "fsync", lambda file: durable.update({os.fstat(file).st_ino: os.fstat(file).st_size}))
    log.sync()
    there = (tmp_path / "metrics.jsonl").stat()
    assert durable == {there.st_ino: there.st_size}
    assert there.st_size > 0
    MetricsLog(tmp_path, 0, enabled=False).sync()  # not on rank 0
    log.close()


def test_other_ranks_write_nothing(tmp_path):
    other = MetricsLog(tmp_path, 0, enabled=False)
    other.log(10, {"loss": 1.0})
    other.close()
    assert list(tmp_path.iterdir()) == []
    assert metrics_log.last_record(tmp_path, "train") is None


class Tracker:
    """Keeps what it gets."""

    def __init__(self):
        self.figures, self.finished = [], None

    def log(self, figures):
        self.figures.append(figures)

    def close(self, finished):
        self.finished = finished


def test_trackers_get_the_curves_of_tensorboard(tmp_path):
    tracker, runs = Tracker(), []

    def opened(run):
        runs.append(run)
        return [tracker]

    log = MetricsLog(tmp_path, 0, enabled=True, settings={"seed": 1}, open_trackers=opened)
    log.log(10, {"loss": 1.5, "trust_ratios": {"w": math.inf}, "guesses": ["a"], "samples": 80})
    log.log(10, {"loss": math.nan, "accuracy": 0.5}, "eval")
    log.close(finished=True)
    assert [(one.step, one.split, one.values) for one in tracker.figures] == [
        (10, "train", {"train/loss": 1.5}),
        (10, "eval", {"eval/accuracy": 0.5}),
    ]
    assert tracker.finished is True
    assert runs[0].settings == {"seed": 1}
    (first, _) = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert first["trust_ratios"] == {"w": None}


def test_other_ranks_open_no_tracker(tmp_path):
    def refuse(run):
        raise AssertionError

    MetricsLog(tmp_path, 0, enabled=False, open_trackers=refuse).log(10, {"loss": 1.0})


def test_a_resumed_run_says_what_a_killed_start_has_sent(tmp_path):
    runs = []

    def opened(run):
        runs.append(run)
        return []

    log = MetricsLog(tmp_path, 0, enabled=True, open_trackers=opened)
    for step, split in ((10, "train"), (20, "train"), (20, "eval"), (30, "train")):
        log.log(step, {"loss": 1.0}, split)
    log.close()
    MetricsLog(tmp_path, 10, enabled=True, open_trackers=opened).close()
    assert runs[0].sent == frozenset()
    assert runs[1].sent == {(20, "train"), (20, "eval"), (30, "train")}


def test_after_a_rollback_trackers_get_the_new_steps_once(tmp_path):
    """A run goes back from step 30 to 10, is killed after step 20, and resumes from step 10."""
    runs = []
    for before, steps in ((0, (10, 20, 30)), (10, (20,)), (10, ())):
        log = MetricsLog(tmp_path, before, enabled=True, open_trackers=lambda run: runs.append(run) or [])
        for step in steps:
            log.log(step, {"loss": 1.0})
        log.close()
        if 30 in steps:
            drop_after(tmp_path, 10)
    assert [run.sent for run in runs] == [set(), set(), {(20, "train")}]


def test_curves_without_a_record(tmp_path):
    log = MetricsLog(tmp_path, 0, enabled=True)
    log.log(0, {"loss": 9.0}, "eval", recorded=False)
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    events = EventAccumulator(str(tmp_path / "tensorboard" / tmp_path.name))
    events.Reload()
    assert [event.step for event in events.Scalars("eval/loss")] == [0]
