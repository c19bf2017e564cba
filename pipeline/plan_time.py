"""Seconds of a step: computing, and summing gradients over the ranks."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import UserError
from model import AlbertConfig
from pipeline.flops import executed_flops, model_flops
from pipeline.plan_hardware import Cluster, Gpu
from pipeline.plan_memory import BYTES, RowShape

BENCHMARK_FORMAT = "train_step 1"
NETWORK_SHARE = 0.8
"""Of a link's nominal speed that collectives reach."""

# Share of the peak that training reaches, by hidden size: wider matrices keep a GPU busier.
_PEAK_SHARES = ((2048, 0.5), (1024, 0.4), (0, 0.3))


@dataclass(frozen=True)
class Speed:
    """How fast a GPU is taken to train.

    Attributes:
        tflops: sustained, of the operations that are executed.
        source: where the number comes from, for the reader.
        measured_on: the hardware's own name, where it was measured.
    """

    tflops: float
    source: str
    measured_on: str | None = None


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step, of which some go to collectives; the two are not taken to overlap."""

    computing: float
    collectives: float

    @property
    def total(self) -> float:
        """Both."""
        return self.computing + self.collectives


def assumed_speed(config: AlbertConfig, peak_tflops: float) -> Speed:
    """Without a measurement: a share of the data sheet's peak that depends on the hidden size."""
    share = next(share for width, share in _PEAK_SHARES if config.hidden_size >= width)
    return Speed(
        share * peak_tflops, f"assumed: {100 * share:.0f} % of {peak_tflops:g} TFLOP/s at width {config.hidden_size}"
    )


def load_benchmark(path: Path) -> dict[str, Any]:
    """The result file of `python -m benchmarks.train_step` on a GPU. Raises UserError for anything else."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"--benchmark {path} cannot be read as JSON; name a file of benchmarks/results") from None
    if not isinstance(result, dict) or result.get("format") != BENCHMARK_FORMAT:
        raise UserError(f"--benchmark {path} is no result of benchmarks.train_step; name a file of benchmarks/results")
    if result["device"] != "cuda":
        raise UserError(
            f"--benchmark {path} was measured on {result['hardware']['name']}, which is no GPU; leave it out"
        )
    return result


def measured_speed(result: dict[str, Any], model: str, precision: str) -> Speed | None:
    """The best TFLOP/s that this model reached on full rows in that precision; None if it was not measured."""
    rows = [
        row
        for row in result["measurements"]
        if (row["model"], row["precision"], row["text"]) == (model, precision, "full rows") and "tflops" in row
    ]
    if not rows:
        return None
    best = max(rows, key=lambda row: float(row["tflops"]))
    hardware = result["hardware"]["name"]
    how = f"{best['system']}, micro-batch {best['micro_batch']}"
    return Speed(float(best["tflops"]), f"measured: {hardware}, {result['date']}, {how}", hardware)


def same_kind(measured_on: str, gpu: Gpu) -> bool:
    """Whether a name as CUDA gives it ("NVIDIA H100 80GB HBM3") has the first word of this kind's."""
    kind = gpu.name.split()[0].lower()
    return kind in re.split(r"[^a-z0-9]+", measured_on.lower())


def collective_seconds(parameters: int, precision: str, zero_stage: int, accumulation: int, cluster: Cluster) -> float:
    """Seconds that gradients and weights travel in one step.

    A ring over all n GPUs carries (n - 1) / n of the bytes past each of them in one pass. Inside a node it runs over
    the GPUs' links, from node to node over their network: the slower counts.
    """
    ranks = cluster.world_size
    size = passes(zero_stage, accumulation) * parameters * BYTES[precision] * (ranks - 1) / ranks
    inside = size / cluster.gpu.link_bytes_per_second if cluster.gpus_per_node > 1 else 0.0
    between = size / (cluster.gpu.network_gbit * 1e9 / 8) if cluster.nodes > 1 else 0.0
    return max(inside, between) / NETWORK_SHARE


def passes(zero_stage: int, accumulation: int) -> int:
    """How often as many bytes as the model has go round in one step.

    A reduce-scatter and an all-gather are a pass, an all-reduce is two. DeepSpeed 0.19.8 all-reduces the gradients at
    stages 0 to 2, though from stage 1 on a rank keeps a slice only (`use_multi_rank_bucket_allreduce`): once a step, at
    stage 2 in every micro-step. Stages 1 and 2 gather the weights after the update. Stage 3 gathers and scatters in
    every micro-step.
    """
    return {0: 2, 1: 3, 2: 2 * accumulation + 1, 3: 2 * accumulation}[zero_stage]


def step_time(
    config: AlbertConfig,
    shape: RowShape,
    checkpointing: str,
    rows_per_gpu: int,
    tflops: float,
    collectives: float,
) -> StepTime:
    """The time of a step in which each GPU computes `rows_per_gpu` rows, over all of its micro-steps."""
    work = executed_flops(config, shape.sequence_length, shape.predictions, checkpointing)
    return StepTime(rows_per_gpu * work / (tflops * 1e12), collectives)


def model_flops_utilisation(
    config: AlbertConfig, shape: RowShape, rows_per_gpu: int, seconds: float, peak_tflops: float
) -> float:
    """MFU: operations that the model needs, recomputing left out, as a share of what the peak would do in the time."""
    return rows_per_gpu * model_flops(config, shape.sequence_length, shape.predictions) / seconds / (peak_tflops * 1e12)
