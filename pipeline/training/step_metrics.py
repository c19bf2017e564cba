"""The metrics of a record: of the task, of the engine, speed and memory."""

import resource
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model import AlbertConfig
from model.counts import model_flops
from pipeline.data.collate import BatchShape
from pipeline.data.sampler import batch_of_step
from pipeline.engine import step as engine_step
from pipeline.engine import zero_layout
from pipeline.engine.deepspeed_config import Precision
from pipeline.engine.hardware import find_by_device_name
from pipeline.training.meter import Meter, sum_over_ranks
from pipeline.training.training_run import Lap, TrainingRun
from pipeline.training.training_task import TrainingTask


class StepMetrics:
    """The metrics of the steps since the last record: of the task, of the engine, speed and memory.

    Args:
        throughput: computes speeds; None leaves out TFLOP/s.
    """

    def __init__(self, run: TrainingRun, task: TrainingTask, throughput: "Throughput | None" = None) -> None:
        self._run, self._task = run, task
        self._throughput = throughput or Throughput(None, run.control.world_size, None)
        self.meter = Meter(task.sums_kind, run.engine.device)
        if run.state.meter is not None:
            self.meter.load(run.state.meter)  # on all ranks, so that all of them refuse sums that do not fit
            if not run.is_rank_0:
                self.meter.reset()  # the sums are already those of all ranks

    def add(self, output: Any, tensors: dict[str, Tensor]) -> None:
        """Adds the sums of a micro-batch: the output of the model, and its input."""
        self.meter.add(self._task.sums(output, tensors))

    def record(self) -> dict[str, Any]:
        """The metrics, which begin anew. Collective; waits for the device."""
        run, state, engine = self._run, self._run.state, self._run.engine
        batch_size = run.settings.engine.train_batch_size
        (totals,) = sum_over_ranks(run.control, self.meter.totals())
        tokens, rows = self.meter.of_this_start(totals)
        self.meter.reset()
        state.tokens += int(totals.tokens)
        skipped = batch_of_step(state.step - 1, run.settings.skipped_batches) - (state.step - 1)
        record = self._task.summarise(totals) | self._task.data_progress((state.step + skipped) * batch_size)
        record |= {
            "samples": state.step * batch_size,
            "tokens": state.tokens,
            "grad_norm": engine_step.gradient_norm(engine),
            "loss_scale": zero_layout.loss_scale(engine),
            "overflow_steps": int(engine.skipped_steps),
            **self._throughput.metrics(tokens, rows, run.clock.lap()),
            "peak_memory_gb": peak_memory_gb(engine.device),
            "seconds": run.clock.seconds(),
        }
        if (ratios := engine_step.trust_ratios(engine)) is not None:
            record["trust_ratios"] = ratios
        if skipped:
            record["batches_passed_over"] = skipped
        return record

    def store(self) -> None:
        """Puts the sums since the last record into the state. Collective; waits for the device."""
        self._run.state.seconds = self._run.clock.seconds()
        self._run.state.meter = self._run.control.sum(self.meter.totals())


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


def peak_memory_gb(device: torch.device) -> float:
    """Peak memory in GB (1e9 bytes): of a GPU since the last call; on a CPU, of this process since its start."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
