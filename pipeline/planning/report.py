"""The plan of a run as text, with warnings and the fastest alternative."""

from dataclasses import asdict

from pipeline.planning.failures import describe
from pipeline.planning.plan import KEPT_CHECKPOINTS, TEXT_BYTES_PER_TOKEN, RunPlan, fastest
from pipeline.planning.request import PlanRequest
from pipeline.planning.time import NETWORK_EFFICIENCY, is_same_kind

NETWORK_BOUND = 0.2
"""The report warns if collectives take more than this part of a step."""


def report(plan: RunPlan) -> str:
    """The plan for people, several lines."""
    request, engine, cluster = plan.request, plan.request.engine, plan.request.cluster
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
        *_cost(plan),
        f"disk: {_gb(plan.data_bytes)} of shards for {_gb(request.text_bytes)} of text, assumed to have "
        f"{TEXT_BYTES_PER_TOKEN} bytes a token; {_gb(plan.checkpoint_bytes)} for {KEPT_CHECKPOINTS} checkpoints",
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


def _cost(plan: RunPlan) -> list[str]:
    """The line of the cost, if a price was given."""
    price = plan.request.price_per_gpu_hour
    if price is None:
        return []
    return [f"cost: {price * plan.gpu_hours:,.0f} at {price:g} for a GPU-hour"]


def warnings_of(plan: RunPlan) -> list[str]:
    """What will not work, or will work badly, each with a remedy."""
    found = []
    if not plan.fits:
        remedy = (
            f"use a micro-batch of at most {plan.largest_micro_batch}"
            if plan.largest_micro_batch
            else "use --activation-checkpointing layer, a higher ZeRO stage or a larger GPU"
        )
        found.append(
            f"{_gb(plan.memory.total)} do not fit into the usable {_gb(plan.usable_memory)} of a GPU; {remedy}"
        )
    measured_on = plan.request.speed.measured_on
    if measured_on is not None and not is_same_kind(measured_on, plan.request.cluster.gpu):
        found.append(f"the speed was measured on {measured_on}, not on {plan.request.cluster.gpu.name}")
    in_collectives = plan.step.collectives / plan.step.total
    if in_collectives > NETWORK_BOUND:
        found.append(
            f"{100 * in_collectives:.0f} % of a step goes to collectives: network-bound; use a larger batch, fewer "
            "nodes, a faster network or a lower ZeRO stage"
        )
    return found


def _failures(plan: RunPlan) -> list[str]:
    if plan.failures is None or plan.request.failures is None:
        return []
    return describe(plan.failures, plan.request.failures, plan.request.cluster.nodes)


def _division(request: PlanRequest, micro_batch: int) -> str:
    """How a run with micro-batches of up to `micro_batch` rows would divide the batch."""
    if not micro_batch:
        return ""
    steps = request.micro_step_count(micro_batch)
    return f", which divides the batch into {-(-request.rows_per_gpu // steps)} x {steps} accumulated"


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"
