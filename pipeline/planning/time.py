"""Seconds of a step, in computation and in collectives over the ranks."""

from dataclasses import dataclass

from model import AlbertConfig
from pipeline.engine.hardware import Cluster
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
        source: where the number is from, for people.
    """

    tflops: float
    source: str


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
