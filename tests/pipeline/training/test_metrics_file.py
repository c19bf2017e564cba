"""Sums of metrics and speeds; the metrics of a run on disk, also after a kill within a line; the lines it prints."""

import json
import math
import os
import resource
import threading
import time
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from common.errors import UserError
from model import AlbertConfig
from pipeline.data.collate import BatchShape
from pipeline.engine.hardware import GPUS, find_by_device_name
from pipeline.training import metrics_file
from pipeline.training.callbacks import LINE_SECONDS, Console, curves_of, evaluation_lines
from pipeline.training.step_metrics import Meter, StepMetrics
from pipeline.training.training_run import Evaluation, Lap, Throughput, TrainingRun, TrainState
from tests.pipeline.training.made_records import evaluation, log_run, open_log, training


def test_a_resumed_run_has_every_step_once_and_the_settings_are_json(tmp_path):
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
    curves = curves_of("train", training(10) | {"samples/books": 5, "epochs/books": 0.5})  # of one corpus
    assert curves.keys() == {f"train/{name}" for name in expected}
    assert (curves["train/trust_ratio_min"], curves["train/trust_ratio_max"]) == (0.25, 2.0)
    evaluated = {
        "pairs": 5,
        "wikipedia/pairs": 7,
        "wikipedia/interval_tokens": 9,
        "wikipedia/mlm_loss": 4.0,
        "tokens/mlm_loss": 5,
    }
    assert curves_of("eval", evaluated).keys() == {"eval/wikipedia/mlm_loss", "eval/tokens/mlm_loss"}


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
    log.on_save()  # there is room again
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 10
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


class Lines:
    """The console of a run that starts at `first`, with a clock that a test sets, and what it prints."""

    def __init__(self, steps=400, first=0, on_gpu=False, max_hours=None):
        self.now = 0.0
        device = SimpleNamespace(type="cuda" if on_gpu else "cpu")
        groups = [{"weight_decay": 0.01}, {"weight_decay": 0.0}]
        engine = SimpleNamespace(device=device, skipped_steps=1, optimizer=SimpleNamespace(param_groups=groups))
        settings = SimpleNamespace(steps=steps, flags=SimpleNamespace(max_hours=max_hours))
        self.run = TrainingRun(settings, SimpleNamespace(rank=0), engine, TrainState(step=first))
        self.console = Console(self.run, now=lambda: self.now)
        self.said = []
        self.run.say = self.said.append

    def log(self, step, now, **more):
        """Logs a record after `step`, `now` seconds after the start. Returns the line; None without one."""
        self.now, self.run.state.step, before = now, step, len(self.said)
        self.console.on_log({**training(10), **more}, is_last=step == self.run.settings.steps)
        return self.said[-1] if len(self.said) > before else None


@pytest.mark.parametrize(
    ("on_gpu", "step", "more", "end"),
    [
        (False, 10, {"overflow_steps": 0}, "6 min 30 s left"),  # of this start, which began after step 5
        (False, 10, {"overflow_steps": 0, "seconds": 3593.0}, "7 s left"),
        (False, 400, {"data_wait_share": 0.3}, "50 tokens/s  waiting 30 %  overflows 1"),
        (True, 400, {"overflow_steps": 0}, "50 tokens/s  MFU 40 %"),
    ],
)
def test_a_line_says_what_matters(on_gpu, step, more, end):
    line = Lines(first=5, on_gpu=on_gpu, max_hours=1.0).log(step, 5.0, **more)
    assert line.startswith(f"step {step:>3}/400  loss 7.6000  mlm 1.0 %  sop 50.0 %  50 tokens/s")
    assert line.endswith(f"  {end}")


def test_the_time_that_is_left_begins_after_an_evaluation_before_the_first_step():
    lines = Lines(100)
    lines.now = 1000.0
    lines.console.on_evaluation(Evaluation(evaluation(0), 0.1, "mlm_loss", ("mlm",)))
    assert lines.log(10, 1005.0, overflow_steps=0).endswith("  45 s left")
    lines.console.on_evaluation(Evaluation(evaluation(10), 0.1, "mlm_loss", ("mlm",)))  # a later one counts
    assert lines.log(20, 1020.0, overflow_steps=0).endswith("  1 min 20 s left")
    tried = Lines(100)
    tried.now = 1000.0
    tried.console.on_trial(Evaluation(evaluation(0), 0.1, "mlm_loss", ("mlm",)), 0.1)
    assert tried.log(10, 1005.0, overflow_steps=0).endswith("  45 s left")


def test_few_lines_and_always_the_first_and_the_last():
    lines = Lines(100)
    printed = [step for step in range(1, 101) if lines.log(step, float(step)) is not None]
    assert printed == [1, *range(11, 100, int(LINE_SECONDS)), 100]


def test_the_first_overflow_is_explained_once():
    lines = Lines()
    lines.run.settings.engine = SimpleNamespace(precision="fp16")
    lines.console._overflow_explained = False
    assert "loss scale is 1024 now" in lines.log(10, 5.0)
    assert lines.log(20, 6.0) is None
    lines.run.settings.engine = SimpleNamespace(precision="bf16")
    lines.console._overflow_explained = False
    assert "loss scale" not in (line := lines.log(30, 5.0))
    assert "no number" in line


def test_weights_that_lamb_only_shrinks_are_named_once():
    """These ratios are of albert-base on a GPU, at a rate that was too high: it never learned anything again."""
    lines = Lines()
    query, projection = "albert.encoder.attention.0.query", "albert.embeddings.projection"
    ratios = {query: 81.0, "albert.encoder.value": 75.0, projection: 100.0, "albert.embeddings.word": 0.2}
    lines.log(10, 0.0, trust_ratios=ratios | {query: 70.0, projection: 3.0, "albert.pooler.dense.weight": 100.0})
    assert len(lines.said) == 1
    lines.log(20, 1.0, trust_ratios=ratios)
    assert lines.said[1].startswith(f"LAMB shrinks {query}, {projection} at each step: their gradients are so small")
    lines.log(30, 2.0, trust_ratios=ratios)
    assert len(lines.said) == 2


def test_an_evaluation_shows_only_what_is_trained_and_each_held_out_set_in_a_line():
    (line,) = evaluation_lines(20, Evaluation(evaluation(20), 0.1, "mlm_loss", ("mlm", "sop")))
    assert line == "step 20: held out  mlm 6.500 (10.0 %)  sop 60.0 %  MLM loss 10.0 % above the unigram entropy"
    (tried,) = evaluation_lines(0, Evaluation(evaluation(0), 0.1, "mlm_loss", ("mlm",)), fraction=0.125)
    assert tried == "step 0: held out  mlm 6.500 (10.0 %)  (12.5 % of the rows)"
    assert evaluation_lines(5, Evaluation({"f1": 0.5}, 0.5, "f1")) == ["step 5: held out  f1 0.5000"]
    other = {f"books/{name}": value for name, value in (evaluation(20) | {"mlm_accuracy": 0.2}).items()}
    metrics, names = evaluation(20) | other, ("wikipedia", "books")
    first, second = evaluation_lines(20, Evaluation(metrics, 0.1, "mlm_loss", ("mlm",), names))
    assert first.startswith("step 20: held out wikipedia  mlm 6.500 (10.0 %)")
    assert second.startswith("step 20: held out books  mlm 6.500 (20.0 %)")


XXLARGE = AlbertConfig.preset("albert-xxlarge")
SHAPE = BatchShape(512, pairs=1, predictions=77)


class MeterSums(NamedTuple):
    """`tokens` and `rows` stand between the others: their names count, not their positions."""

    loss: float
    tokens: float
    rows: float
    labels: float


def batch(*values: float) -> MeterSums:
    """The sums of a batch, on the device."""
    return MeterSums(*(torch.tensor(float(value)) for value in values))


def test_a_meter_continues_from_earlier_totals():
    first, second = Meter(MeterSums, "cpu"), Meter(MeterSums, "cpu")
    first.add(batch(1, 2, 3, 4))
    first.add(batch(10, 20, 30, 40))
    assert first.of_this_start(first.totals()) == (22, 33)
    second.load(list(first.totals()))
    assert second.totals() == first.totals() == MeterSums(loss=11, tokens=22, rows=33, labels=44)
    second.add(batch(1, 2, 3, 4))
    assert second.of_this_start(second.totals()) == (2, 3)
    second.reset()
    assert set(second.totals()) == {0.0}
    second.add(batch(1, 2, 3, 4))
    assert second.of_this_start(second.totals()) == (2, 3)


@pytest.mark.parametrize(("rank", "saved", "tokens"), [(0, 4, 2.0), (0, 3, 0.0), (1, 4, 0.0)])
def test_rank_0_goes_on_from_saved_sums_unless_an_earlier_version_had_others(rank, saved, tokens):
    task = SimpleNamespace(sums_kind=MeterSums, throughput=lambda: None)
    run = mock.Mock(is_rank_0=rank == 0)
    run.engine.device, run.state.meter = "cpu", [1.0, 2.0, 3.0, 4.0][:saved]
    assert StepMetrics(run, task).meter.totals().tokens == tokens


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_batch_without_a_finite_loss_counts_its_tokens_and_rows_alone(loss):
    meter = Meter(MeterSums, "cpu")
    meter.add(batch(1, 2, 3, 4))
    meter.add(batch(loss, 20, 30, 40))
    assert meter.totals() == MeterSums(loss=1, tokens=22, rows=33, labels=4)


def test_speeds_of_a_lap():
    speed = Throughput.of(XXLARGE, SHAPE, 8, "NVIDIA H200", "bf16")
    # 7.58 TFLOP forward and backward a row; 5760 rows in 10 s on 8 GPUs are 72 a second on each: 546 of 989 TFLOP/s.
    metrics = speed.metrics(tokens=2_000_000, rows=5760, lap=Lap(seconds=10.0, waiting=0.5))
    assert metrics == pytest.approx(
        {
            "tokens_per_second": 200_000,
            "rows_per_second": 576,
            "tokens_per_second_per_gpu": 25_000,
            "rows_per_second_per_gpu": 72,
            "tflops_per_gpu": 546,
            "data_wait_share": 0.05,
            "peak_share": 0.552,
        },
        rel=2e-3,
    )


@pytest.mark.parametrize(("device", "precision"), [("CPU", "bf16"), ("NVIDIA H100 PCIe", "bf16"), ("Tesla T4", "bf16")])
def test_an_unknown_peak_is_left_out(device, precision):
    speed = Throughput.of(XXLARGE, SHAPE, 1, device, precision)
    assert "peak_share" not in speed.metrics(1.0, 1.0, Lap(1.0, 0.0))


@pytest.mark.parametrize(
    ("name", "kind"),
    [  # as `nvidia-smi -L` prints them
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("CPU", None),
    ],
)
def test_gpus_are_known_by_their_drivers_names(name, kind):
    assert find_by_device_name(name) is (None if kind is None else GPUS[kind])
