"""Sums of metrics over batches and ranks; records of metrics; speeds, computed by hand."""

import math
from typing import NamedTuple

import pytest
import torch

from model import AlbertConfig
from pipeline.data.collate import BatchShape
from pipeline.engine.hardware import GPUS, find_by_device_name
from pipeline.training.step_metrics import Meter
from pipeline.training.training_run import Lap, Throughput

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
