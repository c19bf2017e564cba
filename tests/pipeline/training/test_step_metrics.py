"""Sums of metrics over batches and ranks; records of metrics; speeds, computed by hand."""

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from model import AlbertConfig
from pipeline.data.collate import BatchShape
from pipeline.engine import engine_state, zero_layout
from pipeline.engine.hardware import GPUS, find_by_device_name
from pipeline.training.step_metrics import Meter, StepMetrics, Throughput
from pipeline.training.training_run import Lap, TrainingRun, TrainState

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


def test_a_meter_continues_from_earlier_totals() -> None:
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


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_batch_without_a_finite_loss_counts_its_tokens_and_rows_alone(loss: float) -> None:
    meter = Meter(MeterSums, "cpu")
    meter.add(batch(1, 2, 3, 4))
    meter.add(batch(loss, 20, 30, 40))
    assert meter.totals() == MeterSums(loss=1, tokens=22, rows=33, labels=4)


def test_speeds_of_a_lap() -> None:
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
def test_an_unknown_peak_is_left_out(device: str, precision: str) -> None:
    speed = Throughput.of(XXLARGE, SHAPE, 1, device, precision)  # type: ignore[arg-type]
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
def test_gpus_are_known_by_their_drivers_names(name: str, kind: str | None) -> None:
    assert find_by_device_name(name) is (None if kind is None else GPUS[kind])


class Sums(NamedTuple):
    loss: float
    tokens: float
    rows: float


def make_step_metrics(rank: int, throughput: Any = None) -> tuple[StepMetrics, TrainingRun]:
    """The metrics of a run that resumes at step 4, with sums since its last record."""
    control: Any = SimpleNamespace(
        rank=rank, world_size=2, sum=list, begin_sum=lambda values: lambda: [float(value) for value in values]
    )
    engine: Any = SimpleNamespace(device=torch.device("cpu"), skipped_steps=3)
    settings: Any = SimpleNamespace(engine=SimpleNamespace(train_batch_size=2), skipped_batches=())
    run = TrainingRun(settings, control, engine, TrainState(step=4, tokens=1000, meter=[1.0, 50.0, 5.0]))
    task: Any = SimpleNamespace(
        sums_kind=Sums,
        sums=lambda output, tensors: Sums(*map(torch.tensor, output)),
        summarise=lambda totals: {"loss": totals.loss / totals.rows},
        data_progress=lambda samples: {"epochs": samples / 100},
    )
    return StepMetrics(run, task, throughput), run


def test_a_record_has_all_sums_and_the_speed_of_this_start_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 of the 60 tokens and 5 of the 6 rows were read by the start before; its time is not in the lap."""
    counted: list[float] = []
    metrics, run = make_step_metrics(0, SimpleNamespace(metrics=lambda *counts: counted.extend(counts[:2]) or {}))
    for module, name, value in (
        (engine_state, "gradient_norm", 2.5),
        (engine_state, "trust_ratios", {"a": 1.0}),
        (zero_layout, "loss_scale", 8.0),
    ):
        monkeypatch.setattr(module, name, lambda engine, value=value: value)
    metrics.add((1.0, 10.0, 1.0), {})
    metrics.store()
    assert run.state.meter == [2.0, 60.0, 6.0]
    record = metrics.record()
    assert counted == [10.0, 1.0]
    assert {name: record[name] for name in ("loss", "epochs", "samples", "tokens")} == {
        "loss": pytest.approx(2 / 6), "epochs": 0.08, "samples": 8, "tokens": 1060,
    }  # fmt: skip
    engine_values = {name: record[name] for name in ("grad_norm", "loss_scale", "overflow_steps", "trust_ratios")}
    assert engine_values == {"grad_norm": 2.5, "loss_scale": 8.0, "overflow_steps": 3, "trust_ratios": {"a": 1.0}}
    assert "batches_passed_over" not in record
    metrics.store()
    assert run.state.meter == [0.0, 0.0, 0.0]
