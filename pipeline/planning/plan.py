"""The plan of a run, the fastest alternative with the same batch on the same GPUs, and both as text with warnings."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from common.errors import UserError
from model.config import ACTIVATION_CHECKPOINTING
from model.counts import executed_flops, model_flops, parameter_counts
from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.engine import workarounds
from pipeline.planning.failures import describe_failures
from pipeline.planning.memory import Memory, copy_bytes, largest_micro_batch, memory
from pipeline.planning.request import PlanRequest
from pipeline.planning.time import NETWORK_EFFICIENCY, StepTime, collective_seconds, is_same_kind
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


@dataclass(frozen=True)
class RunPlan:
    """What a run needs.

    Attributes:
        request: what was planned.
        parameters: of the model.
        memory: bytes on one GPU.
        usable_memory: bytes of one GPU that a run can use.
        largest_micro_batch: rows; 0 if not even one fits.
        step: seconds of one optimizer step.
        tokens_per_second: of all GPUs together.
        mfu: model FLOPs utilisation, from 0 to 1.
        days: of all steps.
        gpu_hours: of all steps and GPUs.
        data_bytes: shards, on disk.
        checkpoint_bytes: one checkpoint, on disk.
        copy_bytes: copies of a checkpoint in the memory of each host while it is written.
    """

    request: PlanRequest
    parameters: int
    memory: Memory
    usable_memory: float
    largest_micro_batch: int
    step: StepTime
    tokens_per_second: float
    mfu: float
    days: float
    gpu_hours: float
    data_bytes: float
    checkpoint_bytes: float
    copy_bytes: float

    @property
    def empty_seconds(self) -> float:
        """Seconds of a step that the empty rows take."""
        return self.step.computing * self.request.engine.empty_share

    @property
    def fits(self) -> bool:
        """Whether the planned micro-batch fits into a GPU's memory."""
        return self.memory.total <= self.usable_memory


def make_plan(request: PlanRequest) -> RunPlan:
    """Computes the plan of a run."""
    config, engine, cluster, shape = request.model, request.engine, request.cluster, request.shape
    parameters = parameter_counts(config).total
    usable = USABLE * cluster.gpu.memory_bytes
    accumulation, rows = engine.accumulation_steps, engine.train_batch_size / cluster.world_size
    computed_rows = engine.micro_batch_size * accumulation  # the empty ones take as long
    collectives = collective_seconds(parameters, engine.precision, engine.zero_stage, accumulation, cluster)
    executed = executed_flops(config, shape.sequence_length, shape.predictions, request.checkpointing)
    needed = model_flops(config, shape.sequence_length, shape.predictions)
    step = StepTime(computed_rows * executed / (1e12 * request.speed.tflops), collectives)
    days = request.steps * step.total / 86400
    return RunPlan(
        request=request,
        parameters=parameters,
        memory=memory(config, engine.micro_batch_size, shape, request.memory_settings),
        usable_memory=usable,
        largest_micro_batch=largest_micro_batch(config, shape, request.memory_settings, usable),
        step=step,
        tokens_per_second=engine.train_batch_size * shape.sequence_length / step.total,
        mfu=rows * needed / step.total / (1e12 * cluster.gpu.tflops[engine.precision]),
        days=days,
        gpu_hours=days * 24 * cluster.world_size,
        data_bytes=STORED_BYTES_PER_TOKEN * request.text_bytes / TEXT_BYTES_PER_TOKEN,
        checkpoint_bytes=BYTES_A_PARAMETER * parameters,
        copy_bytes=cluster.gpus_per_node * copy_bytes(config, cluster.world_size),
    )


def alternatives(request: PlanRequest) -> Iterator[PlanRequest]:
    """The same batch on the same GPUs with every ZeRO stage, activation checkpointing and micro-batch."""
    for stage in (0, 1, 2, 3):
        zero = {**request.engine.json.get("zero_optimization", {}), "stage": stage}
        json = {**request.engine.json, "zero_optimization": zero}
        if not _can_train(json, request.engine.precision):
            continue
        for checkpointing in ACTIVATION_CHECKPOINTING:
            for micro_batch in request.micro_batches:
                engine = replace(
                    request.engine,
                    micro_batch_size=micro_batch,
                    accumulation_steps=request.micro_step_count(micro_batch),
                    json=json,
                )
                yield replace(request, engine=engine, checkpointing=checkpointing)


def _can_train(json: dict[str, Any], precision: str) -> bool:
    """Whether pretrain accepts the JSON at its ZeRO stage, and DeepSpeed can accumulate its gradients there."""
    try:
        workarounds.reject_unsafe_settings(json)
    except UserError:
        return False
    sums_as_it_trains = json.get("data_types", {}).get("grad_accum_dtype") in (None, precision)
    return sums_as_it_trains or json["zero_optimization"]["stage"] > 0


def fastest(request: PlanRequest) -> RunPlan | None:
    """The fastest alternative that fits; None if none fits.

    If several are equally fast, it is one without empty rows, then the one with the largest micro-batch, then the one
    with the lowest ZeRO stage above 0.
    """
    fitting = [plan for plan in map(make_plan, alternatives(request)) if plan.fits]
    least = min((plan.step.total for plan in fitting), default=0.0)

    def rank(plan: RunPlan) -> tuple[bool, int, bool, int]:
        engine = plan.request.engine
        return engine.empty_rows > 0, -engine.micro_batch_size, engine.zero_stage == 0, engine.zero_stage

    return min((plan for plan in fitting if plan.step.total <= EQUALLY_FAST * least), key=rank, default=None)


def report(plan: RunPlan) -> str:
    """The plan for people, several lines."""
    request, engine, cluster = plan.request, plan.request.engine, plan.request.cluster
    price = request.price_per_gpu_hour
    memory = [f"  {name:<14}{_gb(size):>12}" for name, size in asdict(plan.memory).items()]
    where = f"{cluster.nodes} x {cluster.gpus_per_node} {cluster.gpu.name}"
    lines = [
        f"{request.name}, {plan.parameters:,} parameters, on {where}: {engine.precision}, ZeRO stage "
        f"{engine.zero_stage}",
        f"batch: {engine.describe_batch(f'rows of {request.shape.sequence_length}', 'GPU')}; activation checkpointing "
        f"{request.checkpointing}",
        *(f"note: {note}" for note in engine.notes),
        "",
        "memory of a GPU",
        *memory,
        f"  {'together':<14}{_gb(plan.memory.total):>12} of {_gb(plan.usable_memory)} usable",
        f"  largest micro-batch that fits: {plan.largest_micro_batch}{_division(request, plan.largest_micro_batch)}",
        f"memory of a host: {_gb(plan.copy_bytes)} for the copy of a checkpoint while it is written in the background",
        "",
        f"speed of a GPU: {request.speed.tflops:.0f} TFLOP/s ({request.speed.source})",
        f"network of a node: {cluster.gpu.network_gbit:g} Gbit/s, {100 * NETWORK_EFFICIENCY:.0f} % of it reached",
        f"a step: {plan.step.total:.2f} s, of which {1000 * plan.step.collectives:,.1f} ms in collectives",
        *([f"of the step {1000 * plan.empty_seconds:,.1f} ms go to empty rows"] if engine.empty_rows else []),
        f"{plan.tokens_per_second:,.0f} tokens/s, MFU {100 * plan.mfu:.0f} %",
        f"{request.steps:,} steps: {plan.days:.1f} days, {plan.gpu_hours:,.0f} GPU-hours",
        *([f"cost: {price * plan.gpu_hours:,.0f} at {price:g} for a GPU-hour"] if price is not None else []),
        f"disk: {_gb(plan.data_bytes)} of shards for {_gb(request.text_bytes)} of text, assumed to have "
        f"{TEXT_BYTES_PER_TOKEN} bytes a token; {_gb(KEPT_CHECKPOINTS * plan.checkpoint_bytes)} for {KEPT_CHECKPOINTS} "
        "checkpoints",
        *_failures(plan),
        *(f"warning: {warning}" for warning in warnings_of(plan)),
    ]
    best = fastest(request)
    if best is None:
        lines.append("nothing fits with this batch on these GPUs: use more of them, or larger ones")
    else:
        lines.append(
            f"fastest that fits: micro-batch {best.request.engine.micro_batch_size}, ZeRO stage "
            f"{best.request.engine.zero_stage}, activation checkpointing {best.request.checkpointing}: "
            f"{best.step.total:.2f} s a step, {_gb(best.memory.total)}"
        )
    return "\n".join(lines)


def _failures(plan: RunPlan) -> list[str]:
    request, seconds = plan.request, plan.step.total
    if request.failures is None:
        return []
    return describe_failures(request.failures, request.cluster.nodes, seconds, request.steps, plan.checkpoint_bytes)


def warnings_of(plan: RunPlan) -> list[str]:
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
    measured_on = plan.request.speed.measured_on
    if measured_on is not None and not is_same_kind(measured_on, plan.request.cluster.gpu):
        warnings.append(f"the speed was measured on {measured_on}, not on {plan.request.cluster.gpu.name}")
    in_collectives = plan.step.collectives / plan.step.total
    if in_collectives > NETWORK_BOUND:
        warnings.append(
            f"{100 * in_collectives:.0f} % of a step goes to collectives: network-bound; use a larger batch, fewer "
            "nodes, a faster network or a lower ZeRO stage"
        )
    return warnings


def _division(request: PlanRequest, micro_batch: int) -> str:
    """How a run with micro-batches of up to `micro_batch` rows would divide the batch."""
    if not micro_batch:
        return ""
    steps = request.micro_step_count(micro_batch)
    return f", which divides the batch into {-(-request.rows_per_gpu // steps)} x {steps} accumulated"


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"
