"""How fast a run goes and how much memory it takes, a GPU at a time."""

import resource
import sys
from dataclasses import dataclass

import torch

from model import AlbertConfig
from pipeline.batches import BatchShape
from pipeline.clock import Lap
from pipeline.engine_config import Precision
from pipeline.flops import model_flops
from pipeline.plan_hardware import find_by_device_name


@dataclass(frozen=True)
class Throughput:
    """Turns counts and seconds into speeds.

    Attributes:
        row_flops: floating-point operations of training on one row; None where that is not the same for all.
        world_size: ranks.
        peak: floating-point operations a second of one GPU by its data sheet; None where it is not known.
    """

    row_flops: int | None
    world_size: int
    peak: float | None

    @classmethod
    def of(
        cls, model: AlbertConfig, shape: BatchShape, world_size: int, device_name: str, precision: Precision
    ) -> "Throughput":
        """For rows of `shape` on a device of that name (`engine_config.Hardware`)."""
        gpu = find_by_device_name(device_name)
        tflops = None if gpu is None else gpu.tflops.get(precision)
        flops = model_flops(model, shape.sequence_length, shape.predictions)
        return cls(flops, world_size, None if tflops is None else 1e12 * tflops)

    def figures(self, tokens: float, rows: float, lap: Lap) -> dict[str, float]:
        """Speeds of a lap in which all ranks together read `rows` rows with `tokens` tokens."""
        rows_per_gpu = rows / lap.seconds / self.world_size
        figures = {
            "tokens_per_second": tokens / lap.seconds,
            "rows_per_second": rows / lap.seconds,
            "tokens_per_second_per_gpu": tokens / lap.seconds / self.world_size,
            "rows_per_second_per_gpu": rows_per_gpu,
            "data_wait_share": lap.waiting / lap.seconds,
        }
        if self.row_flops is not None:
            speed = rows_per_gpu * self.row_flops
            figures["tflops_per_gpu"] = speed / 1e12
            if self.peak is not None:
                figures["peak_share"] = speed / self.peak
        return figures


def peak_memory_gb(device: torch.device) -> float:
    """The most memory (GB, 1e9 bytes) held since the last call: of the GPU or, on a processor, by this process since
    it began."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
