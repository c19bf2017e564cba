"""Which numbers become curves; what TensorBoard, MLflow and W&B get, also after a kill; that none holds up training.

MLflow's file store and W&B's offline mode need no network.
"""

import importlib.util
import threading
import time

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from common.errors import UserError
from pipeline.training import trackers
from pipeline.training.trackers import BackgroundTracker, curves_of
from tests.pipeline.training.made_records import evaluation, log_run, training


def test_every_number_but_counts_becomes_a_curve():
    counts = {"samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds", "epochs"}
    expected = training(10).keys() - counts - {"trust_ratios"} | {"trust_ratio_min", "trust_ratio_max"}
    curves = curves_of("train", training(10))
    assert curves.keys() == {f"train/{name}" for name in expected}
    assert (curves["train/trust_ratio_min"], curves["train/trust_ratio_max"]) == (0.25, 2.0)


def test_every_step_is_there_once_also_after_a_kill_and_the_settings_are_a_table(tmp_path):
    """The run was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""
    log_run(tmp_path, 0, 40, finished=False)
    time.sleep(1 - time.time() % 1)  # TensorBoard reads files in the order of their names, which have whole seconds
    log_run(tmp_path, 20, 60)
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(10, 61, 10))
    assert [event.step for event in events.Scalars("eval/mlm_accuracy")] == [0, 20, 40, 60]
    text = events.Tensors("settings/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert "`engine.json.optimizer.params.lr`" in text
    assert "`0.001`" in text


def track(directory, name):
    """Logs a run that was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""
    log_run(directory, 0, 40, finished=False, track=[name])
    log_run(directory, 20, 60, track=[name])


def expected(split):
    """The points of the MLM loss: (step, value). Those of steps 30 and 40 were sent by both starts."""
    if split == "train":
        return [(step, training(step)["mlm_loss"]) for step in (10, 20, 30, 30, 40, 40, 50, 60)]
    return [(step, evaluation(step)["mlm_loss"]) for step in (0, 20, 40, 40, 60)]


@pytest.mark.slow
def test_mlflow_s_file_store(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    track(tmp_path / "base", "mlflow")
    assert "failed" not in capsys.readouterr().err
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("albert-pretraining")
    (run,) = client.search_runs([experiment.experiment_id])  # one, although it was started twice
    assert (run.info.run_name, run.info.status) == ("base", "FINISHED")
    assert run.data.params["engine.json.optimizer.params.lr"] == "0.001"
    for split in ("train", "eval"):
        history = client.get_metric_history(run.info.run_id, f"{split}/mlm_loss")
        assert sorted((metric.step, metric.value) for metric in history) == expected(split)


@pytest.mark.slow
def test_wandb_offline(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    track(tmp_path / "base", "wandb")
    assert "failed" not in capsys.readouterr().err
    starts = sorted((tmp_path / "base" / "wandb").glob("offline-run-*"))
    # offline-run-TIME-ID, and -1 behind it if two starts were made in the same second.
    assert {start.name.split("-")[3] for start in starts} == {(tmp_path / "base" / "wandb.id").read_text().strip()}
    assert all(next(start.glob("*.wandb")).stat().st_size > 0 for start in starts)


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match="--track mlflow needs the package mlflow: `pip install mlflow`"):
        trackers.check(["mlflow"])
    monkeypatch.setenv("RANK", "3")  # which does not track
    trackers.check(["mlflow"])


class FakeTracker:
    """Keeps what it gets, and fails in the methods that it is told."""

    id = "1"

    def __init__(self, *failing):
        self.failing, self.steps, self.finished = failing, [], None

    def log(self, step, values):
        self.steps.append(step)
        if "log" in self.failing:
            raise ConnectionError("the service\nis away")

    def close(self, finished):
        self.finished = finished
        if "close" in self.failing:
            raise TimeoutError("no answer")


def refuse(*_):
    raise PermissionError("no key\nfor the service")


@pytest.mark.parametrize(
    ("tracker", "steps", "reason"),
    [
        (FakeTracker(), [10, 20], ""),
        (FakeTracker("log", "close"), [10, 20], "ConnectionError: the service is away"),
        (refuse, [], "PermissionError: no key for the service"),
    ],
)
def test_a_tracker_gets_everything_in_order_and_a_failure_is_one_line(
    tmp_path, capsys, monkeypatch, tracker, steps, reason
):
    monkeypatch.setitem(trackers.SERVICES, "mlflow", tracker if callable(tracker) else lambda *_: tracker)
    tracked = BackgroundTracker("mlflow", tmp_path, {})
    for step in (10, 20):
        tracked.log(step, {"train/loss": float(step)})
    tracked.close(finished=True)
    assert getattr(tracker, "steps", []) == steps
    said = "the tracker mlflow failed, training goes on (metrics.jsonl has everything): "
    assert capsys.readouterr().err == (f"{said}{reason}\n" if reason else "")


def test_one_that_hangs_holds_up_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "MAX_WAITING", 2)
    monkeypatch.setattr(trackers, "CLOSE_SECONDS", 0.05)
    answer = threading.Event()
    monkeypatch.setitem(trackers.SERVICES, "wandb", lambda *_: answer.wait() and FakeTracker())
    tracked = BackgroundTracker("wandb", tmp_path, {})
    for step in range(5):
        tracked.log(step, {})  # returns, although nobody takes them
    tracked.close(finished=False)
    answer.set()
