"""The metrics of a record: of the task, summed over batches and ranks; of the engine; speed and memory."""

import itertools
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline.data.sampler import batch_of_step
from pipeline.distributed.control import ControlGroup
from pipeline.engine import engine_state, zero_layout
from pipeline.training.training_run import Throughput, TrainingRun
from pipeline.training.training_task import TrainingTask

COUNTS = ("tokens", "rows")  # fields of every task's sums: tokens without padding, and rows (samples of fine-tuning)


class Meter:
    """Adds up the sums of batches on the device. Only `totals` waits for the device.

    A batch with a sum that is not finite adds only its tokens and rows. `pipeline.training.run_end` counts the steps of
    such batches. kind: NamedTuple class of the sums, scalar tensors or floats. It has the fields `COUNTS`.
    """

    def __init__(self, kind: type[Any], device: torch.device | str) -> None:
        self._kind = kind
        # float64: within a few hundred steps the number of predicted tokens passes 2**24, where fp32 stops counting.
        self._sums = torch.zeros(len(kind._fields), dtype=torch.float64, device=device)
        self._is_count = torch.tensor([name in COUNTS for name in kind._fields], device=device)
        self._loaded = self._zero = kind._make([0.0] * len(kind._fields))

    def add(self, sums: Sequence[torch.Tensor]) -> None:
        """Adds the sums of one batch, scalars () on the device in a NamedTuple of class `kind`."""
        values = torch.stack([value.detach().double() for value in sums])  # (number of fields,)
        finite = (values.isfinite() | self._is_count).all()
        self._sums += torch.where(finite | self._is_count, values, 0.0)

    def totals(self) -> Any:
        """The sums of this rank, floats in a NamedTuple of class `kind`. Waits for the device."""
        return self._kind._make(self._sums.tolist())

    def load(self, totals: Sequence[float]) -> None:
        """Continues from `totals` of an earlier start."""
        self._sums.copy_(torch.tensor(totals, dtype=torch.float64))
        self._loaded = self._kind._make(totals)

    def of_this_start(self, totals: Any) -> tuple[float, float]:
        """The tokens and rows in `totals` that were not loaded: speeds divide by the time of this start alone."""
        return totals.tokens - self._loaded.tokens, totals.rows - self._loaded.rows

    def reset(self) -> None:
        """Sets all sums to 0."""
        self._sums.zero_()
        self._loaded = self._zero


def sum_over_ranks(control: ControlGroup, *vectors: Any) -> list[Any]:
    """Sums several vectors of floats over all ranks, in one collective. A NamedTuple stays one of its class."""
    return begin_sums(control, *vectors)()


def begin_sums(control: ControlGroup, *vectors: Any) -> Callable[[], list[Any]]:
    """Begins `sum_over_ranks` and does not wait. The function that it returns waits, and gives the summed vectors."""
    finish = control.begin_sum([value for vector in vectors for value in vector])

    def summed() -> list[Any]:
        totals = iter(finish())
        parts = [list(itertools.islice(totals, len(vector))) for vector in vectors]
        return [vector._make(part) if hasattr(vector, "_make") else part for vector, part in zip(vectors, parts)]

    return summed


class StepMetrics:
    """The metrics of the steps since the last record: of the task, of the engine, speed and memory."""

    def __init__(self, run: TrainingRun, task: TrainingTask) -> None:
        self._run, self._task = run, task
        self._throughput = task.throughput() or Throughput(None, run.control.world_size, None)
        self.meter = Meter(task.sums_kind, run.engine.device)
        # The sums are those of all ranks; an earlier version of a task may have had fewer.
        if run.is_rank_0 and run.state.meter is not None and len(run.state.meter) == len(task.sums_kind._fields):
            self.meter.load(run.state.meter)

    def add(self, output: Any, tensors: dict[str, Tensor]) -> None:
        """Adds the sums of a micro-batch: the output of the model, and its input."""
        self.meter.add(self._task.sums(output, tensors))

    def record(self) -> dict[str, Any]:
        """The metrics, which begin anew. Collective; waits for the device."""
        run, state, engine = self._run, self._run.state, self._run.engine
        (totals,) = sum_over_ranks(run.control, self.meter.totals())
        tokens, rows = self.meter.of_this_start(totals)
        self.meter.reset()
        state.tokens += int(totals.tokens)
        skipped = batch_of_step(state.step - 1, run.settings.skipped_batches) - (state.step - 1)
        progress = self._task.data_progress(run.settings.samples_after(state.step + skipped))
        record = self._task.summarise(totals) | progress
        record |= {
            "samples": run.settings.samples_after(state.step),
            "tokens": state.tokens,
            "grad_norm": float(engine.get_global_grad_norm() or 0.0),  # before clipping
            "loss_scale": zero_layout.loss_scale(engine),
            "overflow_steps": int(engine.skipped_steps),
            **self._throughput.metrics(tokens, rows, run.clock.lap()),
            "peak_memory_gb": peak_memory_gb(engine.device),
            "seconds": run.clock.seconds(),
        }
        if (ratios := engine_state.trust_ratios(engine)) is not None:
            record["trust_ratios"] = ratios
        if skipped:
            record["batches_passed_over"] = skipped
        return record

    def store(self) -> None:
        """Puts the sums since the last record into the state. Collective; waits for the device."""
        self._run.state.seconds = self._run.clock.seconds()
        self._run.state.meter = self._run.control.sum(self.meter.totals())


def peak_memory_gb(device: torch.device) -> float:
    """Peak memory in GB (1e9 bytes): of a GPU since the last call; on a CPU, of this process since its start."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
