"""Which trackers are on, what they need, and that a slow or failing one holds up nothing.

Real trackers run without a network: MLflow's file store, offline modes of W&B and Comet, CSV. Each also after a kill.
"""

import csv
import importlib.util
import json
import resource
import threading
import zipfile

import pytest

from common.errors import UserError
from pipeline.tracking import services
from pipeline.tracking.csv_files import CsvFiles
from pipeline.tracking.services import BackgroundTracker
from pipeline.tracking.tracker import Scalars, TrackedRun, Tracker
from tests.pipeline.tracking.made_records import SETTINGS, evaluation, log_run, training
from tests.pipeline.tracking.wandb_file import run_of


def track(directory, names, deepspeed=None):
    """Logs a run that was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""

    def opened(run):
        return services.open_all(names, deepspeed or {}, run)

    log_run(directory, 0, 40, finished=False, open_trackers=opened)
    log_run(directory, 20, 60, open_trackers=opened)


def expected(split):
    """The curve of the MLM loss: (step, value)."""
    if split == "train":
        return [(step, training(step)["mlm_loss"]) for step in range(10, 61, 10)]
    return [(step, evaluation(step)["mlm_loss"]) for step in range(0, 61, 20)]


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
        assert [(metric.step, metric.value) for metric in history] == expected(split)
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
    assert starts[0][2]["optimizer"] == SETTINGS["optimizer"]
    assert "wandb" not in starts[0][2]["deepspeed"]
    rows = [row for *_, rows in starts for row in rows]
    for split in ("train", "eval"):
        tag = f"{split}/mlm_loss"
        assert [(row["step"], row[tag]) for row in rows if tag in row] == expected(split)
    assert next(row for row in rows if row["step"] == 20)["tokens"] == 400


@pytest.mark.slow
def test_comet_offline(tmp_path, monkeypatch, capsys):
    for name in ("COMET_OFFLINE_DIRECTORY", "COMET_API_KEY", "COMET_DISABLE_AUTO_LOGGING"):
        monkeypatch.setenv(name, "")  # so that it is known to be undone
        monkeypatch.delenv(name)
    track(tmp_path / "base", [], {"comet": {"enabled": True, "online": False, "project": "p"}})
    said = capsys.readouterr().err
    assert "failed" not in said
    assert "WARNING" not in said
    starts = []
    for path in sorted((tmp_path / "base" / "comet").glob("*.zip"), key=lambda path: path.stat().st_mtime_ns):
        with zipfile.ZipFile(path) as archive:
            assert set(archive.namelist()) == {"experiment.json", "messages.json"}  # no source code, no patch
            about = json.loads(archive.read("experiment.json"))
            messages = [json.loads(line) for line in archive.read("messages.json").splitlines()]
        starts.append((about["offline_id"], about["project_name"], [(one["type"], one["payload"]) for one in messages]))
    assert len(starts) == 2
    assert {start[:2] for start in starts} == {(starts[0][0], "p")}  # one experiment, although it was started twice
    sent = [message for *_, messages in starts for message in messages]
    assert ("Name", "base") in [(one["key"], one["value"]) for kind, one in sent if kind == "log_other"]
    parameters = [one["param"] for kind, one in sent if kind == "parameter_msg"]
    assert ("optimizer.params.lr", 0.001) in [(one["paramName"], one["paramValue"]) for one in parameters]
    assert not any("comet" in one["paramName"] for one in parameters)
    metrics = [one["metric"] for kind, one in sent if kind == "metric_msg"]
    for split in ("train", "eval"):
        curve = [(one["step"], one["metricValue"]) for one in metrics if one["metricName"] == f"{split}/mlm_loss"]
        assert curve == expected(split)
    assert {one["epoch"] for one in metrics if one["step"] == 60} == {1}


@pytest.mark.parametrize("block", [{}, {"output_path": "logs"}, {"output_path": "logs", "job_name": "mine"}])
def test_csv(tmp_path, monkeypatch, capsys, block):
    monkeypatch.chdir(tmp_path)
    track(tmp_path / "base", ["csv"], {"csv_monitor": block})
    assert capsys.readouterr().err == ""
    place = tmp_path / "logs" / block.get("job_name", "base") if block else tmp_path / "base" / "csv"
    for split in ("train", "eval"):
        with (place / f"{split}_mlm_loss.csv").open() as file:
            header, *rows = csv.reader(file)
        assert header == ["step", "mlm_loss"]
        assert [(int(step), float(value)) for step, value in rows] == expected(split)


def test_csv_files_of_another_run_are_left_alone(tmp_path, capsys):
    place = tmp_path / "logs" / "base"
    place.mkdir(parents=True)
    (place / "train_mlm_loss.csv").write_text("step,mlm_loss\n500,1.0\n")
    track(tmp_path / "base", [], {"csv_monitor": {"enabled": True, "output_path": str(tmp_path / "logs")}})
    assert (place / "train_mlm_loss.csv").read_text() == "step,mlm_loss\n500,1.0\n"
    assert "holds CSV files of another run" in capsys.readouterr().err


def test_a_full_disk_leaves_whole_rows_in_csv_files(tmp_path):
    files, path = CsvFiles(TrackedRun(tmp_path, 0), {}), tmp_path / "csv" / "train_loss.csv"
    files.log(scalars(10))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, hard))
    try:
        with pytest.raises(OSError, match="No space left"):
            files.log(scalars(20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    files.log(scalars(30))
    assert path.read_text() == "step,loss\n10,10.0\n30,30.0\n"


@pytest.mark.parametrize("left", ["", "step,lo"])
def test_a_csv_file_without_a_whole_header_is_made_again(tmp_path, left):
    path = tmp_path / "csv" / "train_loss.csv"
    CsvFiles(TrackedRun(tmp_path, 0), {})
    path.write_text(left)
    CsvFiles(TrackedRun(tmp_path, 20), {}).log(scalars(30))
    assert path.read_text() == "step,loss\n30,30.0\n"


def test_flags_and_blocks_turn_trackers_on():
    json = {"wandb": {"enabled": True, "project": "p"}, "comet": {"enabled": False}, "csv_monitor": {}}
    assert services.wanted(["mlflow"], json) == {"mlflow": {}, "wandb": {"enabled": True, "project": "p"}}
    assert list(services.wanted(["csv", "csv"], json)) == ["csv", "wandb"]
    assert services.wanted([], {}) == {}


def test_a_tensorboard_block_is_a_further_place():
    block = {"enabled": True, "output_path": "logs"}
    assert services.wanted([], {"tensorboard": block}) == {"tensorboard": block}
    assert services.wanted([], {"tensorboard": {"enabled": True}}) == {}


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.parametrize(
    ("track", "json", "message"),
    [
        (["mlflow"], {}, "--track mlflow needs the package mlflow: `pip install mlflow`, or leave it out"),
        (["comet"], {}, "--track comet needs the package comet_ml"),
        ([], {"wandb": {"enabled": True}}, "the block wandb of the DeepSpeed JSON needs the package wandb"),
    ],
)
def test_a_missing_package_is_one_line(nothing_installed, track, json, message):
    with pytest.raises(UserError, match=message):
        services.check(track, json)


def test_other_ranks_need_no_package(nothing_installed, monkeypatch):
    services.check(["csv"], {})
    monkeypatch.setenv("RANK", "3")
    services.check(["mlflow"], {})


def scalars(step):
    return Scalars(step, "train", {"train/loss": float(step)})


class FakeTracker(Tracker):
    """Keeps what it gets, and fails in the methods that it is told."""

    def __init__(self, *failing):
        self.failing, self.steps, self.finished = failing, [], None

    def log(self, scalars):
        self.steps.append(scalars.step)
        if "log" in self.failing:
            raise ConnectionError("the service\nis away")

    def close(self, finished):
        self.finished = finished
        if "close" in self.failing:
            raise TimeoutError("no answer")


def run_through(tmp_path, tracker, opens=True, sent=()):
    def open_tracker(run):
        if not opens:
            raise PermissionError("no key for the service")
        return tracker, frozenset(sent)

    tracked = BackgroundTracker("mlflow", open_tracker, TrackedRun(tmp_path, 0))
    for step in (10, 20):
        tracked.log(scalars(step))
    tracked.close(finished=True)


def test_a_tracker_gets_everything_in_order(tmp_path, capsys):
    tracker = FakeTracker()
    run_through(tmp_path, tracker)
    assert tracker.steps == [10, 20]
    assert tracker.finished is True
    assert capsys.readouterr().err == ""
    known = FakeTracker()
    run_through(tmp_path, known, sent={(10, "train"), (20, "eval")})
    assert known.steps == [20]


def test_one_that_fails_is_named_once_and_still_gets_what_follows(tmp_path, capsys):
    tracker = FakeTracker("log", "close")
    run_through(tmp_path, tracker)
    assert tracker.steps == [10, 20]
    assert capsys.readouterr().err == (
        "the tracker mlflow failed, training goes on (metrics.jsonl has everything): "
        "ConnectionError: the service is away\n"
    )


def test_one_that_does_not_open_is_named_once(tmp_path, capsys):
    run_through(tmp_path, FakeTracker(), opens=False)
    assert capsys.readouterr().err.splitlines() == [
        "the tracker mlflow failed, training goes on (metrics.jsonl has everything): "
        "PermissionError: no key for the service"
    ]


def test_one_that_hangs_holds_up_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(services, "MAX_WAITING", 2)
    answer = threading.Event()

    def open_tracker(run):
        answer.wait()
        return FakeTracker(), frozenset()

    tracked = BackgroundTracker("wandb", open_tracker, TrackedRun(tmp_path, 0), close_seconds=0.05)
    for step in range(5):
        tracked.log(scalars(step))  # returns, although nobody takes them
    tracked.close(finished=False)
    assert capsys.readouterr().err.splitlines() == [
        "the tracker wandb failed, training goes on (metrics.jsonl has everything): 2 records wait for it"
    ]
    answer.set()
