"""Real trackers, without a network: MLflow's file store, W&B's offline mode, CSV files. Each also after a kill."""

import csv

import pytest

from pipeline.tracking import choice
from tests.pipeline.tracking.made_records import SETTINGS, evaluation, log_run, training
from tests.pipeline.tracking.wandb_file import run_of


def track(directory, names, deepspeed=None):
    """Logs a run that was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""

    def opened(run):
        return choice.open_all(names, deepspeed or {}, run)

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
