"""Speeds, computed by hand."""

import pytest

from model import AlbertConfig
from pipeline.data.collate import BatchShape
from pipeline.engine.machine.hardware import GPUS, find_by_device_name
from pipeline.training.reporting.clock import Lap
from pipeline.training.reporting.throughput import Throughput

XXLARGE = AlbertConfig.preset("albert-xxlarge")
SHAPE = BatchShape(512, pairs=1, predictions=77)


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
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100-PCIE-40GB", "a100-40"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", None),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("CPU", None),
    ],
)
def test_gpus_are_known_by_their_drivers_names(name: str, kind: str | None) -> None:
    assert find_by_device_name(name) is (None if kind is None else GPUS[kind])
