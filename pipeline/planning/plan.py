"""The plan of a run, and the fastest alternative with the same batch on the same GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from common.errors import UserError
from model.config import ACTIVATION_CHECKPOINTING
from model.inspection.parameter_counts import parameter_counts
from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.engine import workarounds
from pipeline.planning.failures import FailurePlan, plan_failures
from pipeline.planning.memory import Memory, copy_bytes, largest_micro_batch, memory
from pipeline.planning.request import PlanRequest
from pipeline.planning.time import StepTime, collective_seconds, model_flops_utilisation, step_time
from pipeline.training.settings import RunSettings

USABLE = 0.92
"""Part of a GPU's memory that a run can use; the rest goes to the CUDA context, NCCL and fragments."""
KEPT_CHECKPOINTS = RunSettings.kept_checkpoints + 2
"""The newest, the best one, and the one that is being written."""
TEXT_BYTES_PER_TOKEN = 4.5
STORED_BYTES_PER_TOKEN = 2
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
        checkpoint_bytes: all checkpoints that are kept, on disk.
        copy_bytes: copies of a checkpoint in the memory of each host while it is written.
        failures: what lost nodes cost; None if the request has no failures.
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
    failures: FailurePlan | None

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
    step = step_time(config, shape, request.checkpointing, computed_rows, request.speed.tflops, collectives)
    days = request.steps * step.total / 86400
    checkpoint_bytes = BYTES_A_PARAMETER * parameters
    failures = None
    if request.failures is not None:
        failures = plan_failures(request.failures, cluster.nodes, step.total, request.steps, checkpoint_bytes)
    return RunPlan(
        request=request,
        parameters=parameters,
        memory=memory(config, engine.micro_batch_size, shape, request.memory_settings),
        usable_memory=usable,
        largest_micro_batch=largest_micro_batch(config, shape, request.memory_settings, usable),
        step=step,
        tokens_per_second=engine.train_batch_size * shape.sequence_length / step.total,
        mfu=model_flops_utilisation(config, shape, rows, step.total, cluster.gpu.tflops[engine.precision]),
        days=days,
        gpu_hours=days * 24 * cluster.world_size,
        data_bytes=STORED_BYTES_PER_TOKEN * request.text_bytes / TEXT_BYTES_PER_TOKEN,
        checkpoint_bytes=KEPT_CHECKPOINTS * checkpoint_bytes,
        copy_bytes=cluster.gpus_per_node * copy_bytes(config, cluster.world_size),
        failures=failures,
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
    accumulates_as_it_trains = json.get("data_types", {}).get("grad_accum_dtype") in (None, precision)
    return accumulates_as_it_trains or json["zero_optimization"]["stage"] > 0


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
