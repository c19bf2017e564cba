"""Seconds of a step, in computation and in collectives over the ranks."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from common.errors import UserError
from common.files.json_files import read_as
from model import AlbertConfig
from pipeline.engine.hardware import PAGE_FORMAT, Cluster, Gpu, Page, find_by_device_name, newest_page
from pipeline.planning.memory import BYTES

NETWORK_EFFICIENCY = 0.8
"""Part of a link's nominal speed that collectives reach."""

# (hidden size from which it holds, part of the peak that training reaches): wider matrices keep a GPU busier.
_ASSUMED_EFFICIENCY = ((2048, 0.5), (1024, 0.4), (0, 0.3))


@dataclass(frozen=True)
class Speed:
    """The speed at which a GPU trains.

    Attributes:
        tflops: sustained TFLOP/s, counting all operations that are executed.
        source: how the number was found, for people.
        measured_on: name of the hardware; None if the speed is an assumption.
    """

    tflops: float
    source: str
    measured_on: str | None = None


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step. Computation and collectives are assumed not to overlap."""

    computing: float
    collectives: float

    @property
    def total(self) -> float:
        """Seconds of both together."""
        return self.computing + self.collectives


def assumed_speed(config: AlbertConfig, peak_tflops: float) -> Speed:
    """The speed without a measurement: a part of the data sheet's peak that depends on the hidden size."""
    efficiency = next(part for width, part in _ASSUMED_EFFICIENCY if config.hidden_size >= width)
    return Speed(
        efficiency * peak_tflops,
        f"assumed: {100 * efficiency:.0f} % of {peak_tflops:g} TFLOP/s at width {config.hidden_size}",
    )


@dataclass(frozen=True)
class Measurement:
    """One row of a result file; `tflops` is missing where the memory did not suffice, `length` in older files."""

    model: str
    precision: str
    text: str
    system: str = ""
    micro_batch: int | None = None
    length: int | None = None
    tflops: Annotated[float, Interval(gt=0.0, lt=1e6)] | None = None


@dataclass(frozen=True)
class Benchmark(Page):
    """The keys of a result file that are read."""

    measurements: list[Measurement] = field(default_factory=list)


def load_benchmark(path: Path) -> Benchmark:
    """The result file of `make gpu`. Raises UserError for anything else."""
    found = read_as(path, Benchmark, "name a file of benchmarks/results", extra="ignore")
    if (found.format, found.device) != (PAGE_FORMAT, "cuda"):
        raise UserError(f"--benchmark {path} is no result of `make gpu` on a GPU; name a file of benchmarks/results")
    return found


def page_of(gpu: Gpu) -> Path | None:
    """The result file of `make gpu` on a GPU of this kind; None if there is none."""
    found = newest_page(lambda name: is_same_kind(name, gpu))
    return None if found is None else found[0]


def measured_speed(result: Benchmark, model: str, precision: str, length: int) -> Speed | None:
    """The best measured TFLOP/s of this model on full rows of `length` tokens in that precision; None without any."""
    rows = [
        row
        for row in result.measurements
        if (row.model, row.precision, row.text) == (model, precision, "full rows")
        and row.tflops is not None
        and row.length in (None, length)
    ]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.tflops or 0.0)
    hardware, how = result.hardware.name, f"{best.system}, micro-batch {best.micro_batch}"
    return Speed(best.tflops or 0.0, f"measured: {hardware}, {result.date}, {how}", hardware)


def is_same_kind(measured_on: str, gpu: Gpu) -> bool:
    """Whether a CUDA device name, such as "NVIDIA H100 80GB HBM3", is that of a GPU of this kind."""
    kind = find_by_device_name(measured_on)
    return kind is not None and kind.name == gpu.name


def collective_seconds(parameters: int, precision: str, zero_stage: int, accumulation: int, cluster: Cluster) -> float:
    """Seconds of the collectives in one step, for gradients and weights.

    In one pass of a ring over n GPUs each sends (n - 1) / n of the bytes. The ring uses the GPUs' links inside a node
    and the network between nodes; the slower one decides.
    """
    ranks = cluster.world_size
    size = passes(zero_stage, accumulation) * parameters * BYTES[precision] * (ranks - 1) / ranks
    inside = size / cluster.gpu.link_bytes_per_second if cluster.gpus_per_node > 1 else 0.0
    between = size / (cluster.gpu.network_gbit * 1e9 / 8) if cluster.nodes > 1 else 0.0
    return max(inside, between) / NETWORK_EFFICIENCY


def passes(zero_stage: int, accumulation: int) -> int:
    """How many times the model's bytes go round the ring in one step.

    A reduce-scatter or an all-gather is one pass, an all-reduce is two. DeepSpeed 0.19.8 all-reduces the gradients at
    stages 0 to 2 (`use_multi_rank_bucket_allreduce`), although a rank keeps only a slice from stage 1 on. It does so
    once per step, and at stage 2 in every micro-step. Stages 1 and 2 gather the weights after the update. Stage 3
    gathers and scatters in every micro-step.
    """
    return {0: 2, 1: 3, 2: 2 * accumulation + 1, 3: 2 * accumulation}[zero_stage]
