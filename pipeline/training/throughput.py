"""Speeds: tokens and rows a second, TFLOP/s, and the share of a GPU's peak."""

from dataclasses import dataclass

from model import AlbertConfig
from model.counts import model_flops
from pipeline.data.collate import BatchShape
from pipeline.engine.engine_config import Precision
from pipeline.engine.hardware import find_by_device_name
from pipeline.training.training_run import Lap


@dataclass(frozen=True)
class Throughput:
    """Computes speeds from counts and seconds.

    Attributes:
        row_flops: floating-point operations of training on one row; None if rows differ.
        world_size: ranks.
        peak: floating-point operations a second of one GPU, by its data sheet; None if unknown.
    """

    row_flops: int | None
    world_size: int
    peak: float | None

    @classmethod
    def of(
        cls, model: AlbertConfig, shape: BatchShape, world_size: int, device_name: str, precision: Precision
    ) -> "Throughput":
        """For rows of `shape` on a device called `device_name` (see `pipeline.engine.hardware.Hardware`)."""
        gpu = find_by_device_name(device_name)
        tflops = None if gpu is None else gpu.tflops.get(precision)
        flops = model_flops(model, shape.sequence_length, shape.predictions)
        return cls(flops, world_size, None if tflops is None else 1e12 * tflops)

    def metrics(self, tokens: float, rows: float, lap: Lap) -> dict[str, float]:
        """Speeds of a lap in which all ranks together trained on `rows` rows with `tokens` tokens."""
        rows_per_gpu = rows / lap.seconds / self.world_size
        metrics = {
            "tokens_per_second": tokens / lap.seconds,
            "rows_per_second": rows / lap.seconds,
            "tokens_per_second_per_gpu": tokens / lap.seconds / self.world_size,
            "rows_per_second_per_gpu": rows_per_gpu,
            "data_wait_share": lap.waiting / lap.seconds,
        }
        if self.row_flops is not None:
            speed = rows_per_gpu * self.row_flops
            metrics["tflops_per_gpu"] = speed / 1e12
            if self.peak is not None:
                metrics["peak_share"] = speed / self.peak
        return metrics
