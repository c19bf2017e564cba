"""The metrics of a run on disk, also after a kill in the middle of a line."""

import json
import math
import os
import resource
import threading
import time

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from common.errors import UserError
from pipeline.training import metrics_file
from pipeline.training.callbacks import curves_of
from tests.pipeline.training.made_records import log_run, open_log, training


def test_a_resumed_run_has_every_step_once_and_the_settings_are_a_table(tmp_path):
    """The run was killed after step 40, within a line, had a checkpoint of step 20, and then ran to step 60."""
    log_run(tmp_path, 0, 40)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 50, "spl')
    time.sleep(1 - time.time() % 1)  # TensorBoard reads files in the order of their names, which have whole seconds
    log_run(tmp_path, 20, 60, more=2.0)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = {10: 7.6, 20: 7.5, 30: 9.4, 40: 9.3, 50: 9.2, 60: 9.1}
    steps = [(step, split) for step in losses for split in ("train", "eval") if split == "train" or step % 20 == 0]
    assert [(record["step"], record["split"]) for record in records] == steps
    assert {r["step"]: r["loss"] for r in records if r["split"] == "train"} == pytest.approx(losses)
    assert metrics_file.read_records(tmp_path, "eval")[-1] == records[-1]
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    found = events.Scalars("train/loss")
    assert [event.step for event in found] == list(losses)
    assert [event.value for event in found] == pytest.approx(list(losses.values()))
    assert [event.step for event in events.Scalars("eval/mlm_accuracy")] == [0, 20, 40, 60]
    text = events.Tensors("settings/text_summary")[-1].tensor_proto.string_val[0].decode()
    shown = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
    assert shown["engine"]["json"]["optimizer"]["params"]["lr"] == 0.001


def test_the_records_before_a_save_are_durable(tmp_path, monkeypatch):
    log = open_log(tmp_path)[0]
    log.log(10, {"loss": 1.0})
    durable = {}
    monkeypatch.setattr(os, "fsync", lambda file: durable.update({os.fstat(file).st_ino: os.fstat(file).st_size}))
    log.on_save()
    there = (tmp_path / "metrics.jsonl").stat()
    assert durable == {there.st_ino: there.st_size}
    assert there.st_size > 0
    open_log(tmp_path, rank=1)[0].on_save()  # not on rank 0
    log.on_end()


def test_every_number_but_counts_becomes_a_curve():
    counts = {"samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds", "epochs"}
    expected = training(10).keys() - counts - {"trust_ratios"} | {"trust_ratio_min", "trust_ratio_max"}
    curves = curves_of("train", training(10))
    assert curves.keys() == {f"train/{name}" for name in expected}
    assert (curves["train/trust_ratio_min"], curves["train/trust_ratio_max"]) == (0.25, 2.0)


def test_a_number_that_is_not_finite_is_null(tmp_path):
    log, _ = open_log(tmp_path)
    log.log(10, {"loss": 1.5, "trust_ratios": {"w": math.inf}})
    log.log(10, {"loss": math.nan}, "eval")
    log.on_end()
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (first["loss"], first["trust_ratios"], second["loss"]) == (1.5, {"w": None}, None)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_disk_that_is_full_from_the_start_is_one_line(tmp_path, capsys):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        log, _ = open_log(tmp_path)
        log.log(10, {"loss": 1.0})
        while any(type(thread).__module__.startswith("tensorboard.") for thread in threading.enumerate()):
            time.sleep(0.01)  # its thread fails some time later
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("metrics cannot be written, training goes on: [Errno 27] File too large")
    log.log(20, {"loss": 2.0})
    log.on_end()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 20]


@pytest.mark.parametrize("value", ['"fast"', "[1, 2]", "9" * 400, "1e999", "-1e301", '{"w": "x"}', '{"w": [1]}'])
def test_a_record_whose_metric_is_no_number_is_one_line(tmp_path, value):
    line = '{"step": 1, "split": "train", "tokens": 5, "loss": null, "trust_ratios": {"w": 1.5}}\n'
    (tmp_path / "metrics.jsonl").write_text(line)
    assert metrics_file.read_records(tmp_path, "train")[-1]["tokens"] == 5
    (tmp_path / "metrics.jsonl").write_text(line + line.replace("5,", f"{value},", 1))
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: 'tokens' is no number; restore it, or move it away"):
        metrics_file.read_records(tmp_path, "train")
