"""The plan of a run, the fastest alternative with the same batch on the same GPUs, and both as text with warnings."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from common.errors import UserError
from model import AlbertConfig
from model.config import ACTIVATION_CHECKPOINTING
from model.counts import executed_flops, forward_flops, model_flops, parameter_counts
from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.data import sampler
from pipeline.data.collate import BatchShape
from pipeline.engine import workarounds
from pipeline.engine.config import EngineConfig
from pipeline.engine.hardware import Cluster
from pipeline.planning import memory as memory_plan
from pipeline.planning.memory import Memory, MemorySettings
from pipeline.planning.time import (
    NETWORK_EFFICIENCY,
    Speed,
    StepTime,
    collective_seconds,
)
from pipeline.settings.pretrain import PretrainFlags

USABLE = 0.92
"""Part of a GPU's memory that a run can use; the rest goes to the CUDA context, NCCL and fragments."""
KEPT_CHECKPOINTS = PretrainFlags.kept_checkpoints + 2
"""The newest, the best one, and the one that is being written."""
TEXT_BYTES_PER_TOKEN = 4.5
STORED_BYTES_PER_TOKEN = 2
NETWORK_BOUND = 0.2
"""The report warns if collectives take more than this part of a step."""
EQUALLY_FAST = 1.01
"""Step times that differ by a smaller factor are equal: the estimates are not more accurate."""
MAX_COMPARED = 256
"""Numbers of micro-steps, and small micro-batches, that are compared."""


@dataclass(frozen=True)
class Plan:
    """A run, and what it needs.

    Attributes:
        name: of the preset.
        model: architecture.
        engine: the DeepSpeed JSON, fitted to the ranks.
        cluster: the GPUs.
        shape: of a batch.
        checkpointing: of activations: "none" or "layer".
        speed: of a GPU.
        steps: optimizer steps of the run.
        text_bytes: size of the corpus.
        price_per_gpu_hour: in any currency; None if it is not known.
        teacher: of a distillation; None without one.
    """

    name: str
    model: AlbertConfig
    engine: EngineConfig
    cluster: Cluster
    shape: BatchShape
    checkpointing: str
    speed: Speed
    steps: int
    text_bytes: float
    price_per_gpu_hour: float | None = None
    teacher: AlbertConfig | None = None

    @property
    def teacher_bytes(self) -> int:
        """Bytes of the teacher's weights, which each GPU holds whole. It keeps no activations."""
        if self.teacher is None:
            return 0
        return memory_plan.BYTES[self.engine.precision] * parameter_counts(self.teacher).backbone

    @property
    def memory_settings(self) -> MemorySettings:
        """The settings that decide about memory."""
        zero = self.engine.json.get("zero_optimization", {})
        return MemorySettings(
            precision=self.engine.precision,
            zero_stage=self.engine.zero_stage,
            world_size=self.cluster.world_size,
            checkpointing=self.checkpointing,
            accumulation=self.engine.accumulation_steps,
            accumulates=self.engine.json.get("data_types", {}).get("grad_accum_dtype"),
            bucket=int(zero.get("reduce_bucket_size", memory_plan.DEFAULT_BUCKET)),
            overlap=bool(zero.get("overlap_comm", False)),
            max_live=int(zero.get("stage3_max_live_parameters", 1e9)),
        )

    @property
    def rows_per_gpu(self) -> int:
        """Rows of one step on the GPU that has most."""
        return -(-self.engine.train_batch_size // self.cluster.world_size)

    @property
    def micro_batches(self) -> list[int]:
        """The micro-batches that are worth a comparison, ascending.

        Each is as small as its number of micro-steps allows. Up to `MAX_COMPARED` numbers of micro-steps and as many
        small micro-batches are compared; up to 65,536 rows on a GPU these are all.
        """
        rows = self.rows_per_gpu
        few = range(1, min(rows, MAX_COMPARED) + 1)
        return sorted({-(-rows // steps) for steps in (*few, *(-(-rows // size) for size in few))})

    def micro_step_count(self, micro_batch: int) -> int:
        """The micro-steps of a step with micro-batches of up to `micro_batch` rows."""
        return sampler.micro_step_count(self.cluster.world_size, micro_batch, self.engine.train_batch_size)

    @cached_property
    def parameters(self) -> int:
        """Of the model."""
        return parameter_counts(self.model).total

    @cached_property
    def memory(self) -> Memory:
        """Bytes on one GPU."""
        found = memory_plan.memory(self.model, self.engine.micro_batch_size, self.shape, self.memory_settings)
        return replace(found, weights=found.weights + self.teacher_bytes)

    @property
    def usable_memory(self) -> float:
        """Bytes of one GPU that a run can use."""
        return USABLE * self.cluster.gpu.memory_bytes

    @property
    def fits(self) -> bool:
        """Whether the micro-batch fits into a GPU's memory."""
        return self.memory.total <= self.usable_memory

    @cached_property
    def largest_micro_batch(self) -> int:
        """Rows; 0 if not even one fits."""
        usable = self.usable_memory - self.teacher_bytes
        return memory_plan.largest_micro_batch(self.model, self.shape, self.memory_settings, usable)

    @cached_property
    def step(self) -> StepTime:
        """Seconds of one optimizer step. Empty rows take as long as others."""
        engine, length, predictions = self.engine, self.shape.sequence_length, self.shape.predictions
        rows = engine.micro_batch_size * engine.accumulation_steps
        flops = rows * executed_flops(self.model, length, predictions, self.checkpointing)
        if self.teacher is not None:
            flops += rows * sum(forward_flops(self.teacher, length, 0))
        collectives = collective_seconds(
            self.parameters, engine.precision, engine.zero_stage, engine.accumulation_steps, self.cluster
        )
        return StepTime(flops / (1e12 * self.speed.tflops), collectives)

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs together."""
        return self.engine.train_batch_size * self.shape.sequence_length / self.step.total

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, from 0 to 1."""
        flops = model_flops(self.model, self.shape.sequence_length, self.shape.predictions)
        rows = self.engine.train_batch_size / self.cluster.world_size
        return rows * flops / self.step.total / (1e12 * self.cluster.gpu.tflops[self.engine.precision])

    @property
    def days(self) -> float:
        """Of all steps."""
        return self.steps * self.step.total / 86400

    @property
    def gpu_hours(self) -> float:
        """Of all steps and GPUs."""
        return self.days * 24 * self.cluster.world_size

    @property
    def checkpoint_bytes(self) -> float:
        """One checkpoint, on disk."""
        return BYTES_A_PARAMETER * self.parameters


def alternatives(plan: Plan) -> Iterator[Plan]:
    """The same batch on the same GPUs with every ZeRO stage, activation checkpointing and micro-batch."""
    for stage in (0, 1, 2, 3):
        zero = {**plan.engine.json.get("zero_optimization", {}), "stage": stage}
        json = {**plan.engine.json, "zero_optimization": zero}
        if not _can_train(json, plan.engine.precision):
            continue
        for checkpointing in ACTIVATION_CHECKPOINTING:
            for micro_batch in plan.micro_batches:
                engine = replace(
                    plan.engine,
                    micro_batch_size=micro_batch,
                    accumulation_steps=plan.micro_step_count(micro_batch),
                    json=json,
                )
                yield replace(plan, engine=engine, checkpointing=checkpointing)


def _can_train(json: dict[str, Any], precision: str) -> bool:
    """Whether pretrain accepts the JSON at its ZeRO stage, and DeepSpeed can accumulate its gradients there."""
    try:
        workarounds.reject_unsafe_settings(json)
    except UserError:
        return False
    sums_as_it_trains = json.get("data_types", {}).get("grad_accum_dtype") in (None, precision)
    return sums_as_it_trains or json["zero_optimization"]["stage"] > 0


def fastest(plan: Plan) -> Plan | None:
    """The fastest alternative that fits, at stage 3 only if no lower stage fits; None if none fits.

    If several are equally fast, it is one without empty rows, then the one with the largest micro-batch, then the one
    with the lowest ZeRO stage above 0.
    """
    fitting = [other for other in alternatives(plan) if other.fits]
    # Stage 3 gathers each matrix in every layer, which the time does not count, and excludes compile.
    fitting = [other for other in fitting if other.engine.zero_stage < 3] or fitting
    least = min((other.step.total for other in fitting), default=0.0)

    def rank(other: Plan) -> tuple[bool, int, bool, int]:
        engine = other.engine
        return engine.empty_rows > 0, -engine.micro_batch_size, engine.zero_stage == 0, engine.zero_stage

    return min((other for other in fitting if other.step.total <= EQUALLY_FAST * least), key=rank, default=None)


def report(plan: Plan) -> str:
    """The plan for people, several lines."""
    engine, cluster, price = plan.engine, plan.cluster, plan.price_per_gpu_hour
    copies = cluster.gpus_per_node * memory_plan.copy_bytes(plan.model, cluster.world_size)
    shards = STORED_BYTES_PER_TOKEN * plan.text_bytes / TEXT_BYTES_PER_TOKEN
    memory = [f"  {name:<14}{_gb(size):>12}" for name, size in asdict(plan.memory).items()]
    where = f"{cluster.nodes} x {cluster.gpus_per_node} {cluster.gpu.name}"
    lines = [
        f"{plan.name}, {plan.parameters:,} parameters, on {where}: {engine.precision}, ZeRO stage {engine.zero_stage}",
        f"batch: {engine.describe_batch(f'rows of {plan.shape.sequence_length}', 'GPU')}; activation checkpointing "
        f"{plan.checkpointing}",
        *(f"note: {note}" for note in engine.notes),
        *([f"distilled from a teacher of {_gb(plan.teacher_bytes)} of weights"] if plan.teacher is not None else []),
        "",
        "memory of a GPU",
        *memory,
        f"  {'together':<14}{_gb(plan.memory.total):>12} of {_gb(plan.usable_memory)} usable",
        f"  largest micro-batch that fits: {plan.largest_micro_batch}{_division(plan, plan.largest_micro_batch)}",
        f"memory of a host: {_gb(copies)} for the copy of a checkpoint while it is written in the background",
        "",
        f"speed of a GPU: {plan.speed.tflops:.0f} TFLOP/s ({plan.speed.source})",
        f"network of a node: {cluster.gpu.network_gbit:g} Gbit/s, {100 * NETWORK_EFFICIENCY:.0f} % of it reached",
        f"a step: {plan.step.total:.2f} s, of which {1000 * plan.step.collectives:,.1f} ms in collectives",
        f"{plan.tokens_per_second:,.0f} tokens/s, MFU {100 * plan.mfu:.0f} %",
        f"{plan.steps:,} steps: {plan.days:.1f} days, {plan.gpu_hours:,.0f} GPU-hours",
        *([f"cost: {price * plan.gpu_hours:,.0f} at {price:g} for a GPU-hour"] if price is not None else []),
        f"disk: {_gb(shards)} of shards for {_gb(plan.text_bytes)} of text, assumed to have "
        f"{TEXT_BYTES_PER_TOKEN} bytes a token; {_gb(KEPT_CHECKPOINTS * plan.checkpoint_bytes)} for {KEPT_CHECKPOINTS} "
        "checkpoints",
        *(f"warning: {warning}" for warning in warnings_of(plan)),
    ]
    best = fastest(plan)
    if best is None:
        lines.append("nothing fits with this batch on these GPUs: use more of them, or larger ones")
    else:
        lines.append(
            f"fastest that fits: micro-batch {best.engine.micro_batch_size}, ZeRO stage "
            f"{best.engine.zero_stage}, activation checkpointing {best.checkpointing}: "
            f"{best.step.total:.2f} s a step, {_gb(best.memory.total)}"
        )
    return "\n".join(lines)


def warnings_of(plan: Plan) -> list[str]:
    """What will not work, or will work badly, each with a remedy."""
    warnings = []
    if not plan.fits:
        remedy = (
            f"use a micro-batch of at most {plan.largest_micro_batch}"
            if plan.largest_micro_batch
            else "use --activation-checkpointing layer, a higher ZeRO stage or a larger GPU"
        )
        warnings.append(
            f"{_gb(plan.memory.total)} do not fit into the usable {_gb(plan.usable_memory)} of a GPU; {remedy}"
        )
    in_collectives = plan.step.collectives / plan.step.total
    if in_collectives > NETWORK_BOUND:
        warnings.append(
            f"{100 * in_collectives:.0f} % of a step goes to collectives: network-bound; use a larger batch, fewer "
            "nodes, a faster network or a lower ZeRO stage"
        )
    return warnings


def _division(plan: Plan, micro_batch: int) -> str:
    """How a run with micro-batches of up to `micro_batch` rows would divide the batch."""
    if not micro_batch:
        return ""
    steps = plan.micro_step_count(micro_batch)
    return f", which divides the batch into {-(-plan.rows_per_gpu // steps)} x {steps} accumulated"


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"
