"""Which trackers are on, what they need, and that a slow or failing one holds up nothing.

Real trackers run without a network: MLflow's file store and W&B's offline mode. Each also after a kill.
"""

import importlib.util
import threading

import pytest

from common.errors import UserError
from pipeline.training.tracking import services
from pipeline.training.tracking.services import BackgroundTracker
from tests.pipeline.training.tracking.made_records import RECORD, evaluation, log_run, training
from tests.pipeline.training.tracking.wandb_file import run_of


def track(directory, names, deepspeed=None):
    """Logs a run that was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""
    turned_on = {"track": names, "json": deepspeed or {}}
    log_run(directory, 0, 40, finished=False, **turned_on)
    log_run(directory, 20, 60, **turned_on)


def expected(split):
    """The points of the MLM loss: (step, value). Those of steps 30 and 40 were sent by both starts."""
    if split == "train":
        return [(step, training(step)["mlm_loss"]) for step in (10, 20, 30, 30, 40, 40, 50, 60)]
    return [(step, evaluation(step)["mlm_loss"]) for step in (0, 20, 40, 40, 60)]


@pytest.mark.slow
def test_mlflow_s_file_store(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    track(tmp_path / "base", ["mlflow"])
    assert "failed" not in capsys.readouterr().err
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("albert-pretraining")
    (run,) = client.search_runs([experiment.experiment_id])  # one, although it was started twice
    assert (run.info.run_name, run.info.status) == ("base", "FINISHED")
    assert run.data.params["optimizer.params.lr"] == "0.001"
    assert not any("wandb" in name for name in run.data.params)
    for split in ("train", "eval"):
        history = client.get_metric_history(run.info.run_id, f"{split}/mlm_loss")
        assert sorted((metric.step, metric.value) for metric in history) == expected(split)
    assert "train/sop_loss" not in run.data.metrics  # as in TensorBoard


@pytest.mark.slow
def test_wandb_offline(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    track(tmp_path / "base", [], {"wandb": {"enabled": True, "project": "p"}})
    assert "failed" not in capsys.readouterr().err
    starts = [run_of(place) for place in sorted((tmp_path / "base" / "wandb").glob("offline-run-*"))]
    assert len({identifier for identifier, *_ in starts}) == 1
    assert {name for _, name, *_ in starts} == {"base"}
    assert starts[0][2]["optimizer"] == RECORD.optimizer
    assert "wandb" not in starts[0][2]["deepspeed"]
    rows = [row for *_, rows in starts for row in rows]
    for split in ("train", "eval"):
        tag = f"{split}/mlm_loss"
        assert sorted((row["step"], row[tag]) for row in rows if tag in row) == expected(split)
    assert next(row for row in rows if row["step"] == 20)["tokens"] == 400


def test_flags_and_blocks_turn_trackers_on():
    json = {"wandb": {"enabled": True, "project": "p"}, "csv_monitor": {"enabled": True}}
    assert services.wanted(["mlflow"], json) == ["mlflow", "wandb"]
    assert services.wanted(["wandb"], {"wandb": {"enabled": False}}) == ["wandb"]
    assert services.wanted([], {"wandb": {"enabled": False}}) == []


@pytest.mark.parametrize(
    ("track", "json", "message"),
    [
        (["mlflow"], {}, "--track mlflow needs the package mlflow: `pip install mlflow`, or leave it out"),
        ([], {"wandb": {"enabled": True}}, "the block wandb of the DeepSpeed JSON needs the package wandb"),
    ],
)
def test_a_missing_package_is_one_line(monkeypatch, track, json, message):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match=message):
        services.check(track, json)
    monkeypatch.setenv("RANK", "3")  # which does not track
    services.check(track, json)


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
    monkeypatch.setitem(services.SERVICES, "mlflow", tracker if callable(tracker) else lambda *_: tracker)
    tracked = BackgroundTracker("mlflow", tmp_path, {})
    for step in (10, 20):
        tracked.log(step, {"train/loss": float(step)})
    tracked.close(finished=True)
    assert getattr(tracker, "steps", []) == steps
    said = "the tracker mlflow failed, training goes on (metrics.jsonl has everything): "
    assert capsys.readouterr().err == (f"{said}{reason}\n" if reason else "")


def test_one_that_hangs_holds_up_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "MAX_WAITING", 2)
    monkeypatch.setattr(services, "CLOSE_SECONDS", 0.05)
    answer = threading.Event()
    monkeypatch.setitem(services.SERVICES, "wandb", lambda *_: answer.wait() and FakeTracker())
    tracked = BackgroundTracker("wandb", tmp_path, {})
    for step in range(5):
        tracked.log(step, {})  # returns, although nobody takes them
    tracked.close(finished=False)
    answer.set()
