"""Plans a run: its memory, time and cost, before a GPU is rented.

    python -m pipeline.plan --model albert-xxlarge --deepspeed_config ds_configs/xxlarge-80gb.json \\
        --nodes 8 --gpus-per-node 8 --gpu h100

Prints parameters, bytes on a GPU by kind, the largest micro-batch that fits, the time of a step and of the run, disk
space, and warnings. Without --reached-tflops the speed of the GPU is an assumption, which is printed.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.command_line import Parser, above_zero, entry_point, positive, price
from common.errors import UserError
from data_prep.format.pairs import max_pairs
from model import AlbertConfig
from model.config import ACTIVATION_CHECKPOINTING, PRESETS
from pipeline.checkpoint.checkpoint_manifest import BYTES_A_PARAMETER
from pipeline.data.collate import BatchShape, Objective
from pipeline.data.masking import MaskingSettings
from pipeline.engine.hardware import GPUS, Cluster, Hardware, find_gpu
from pipeline.settings import declare
from pipeline.settings.declare import flag
from pipeline.settings.pretrain_flags import PretrainFlags, parse_fields
from pipeline.settings.run_flags import Precision

if TYPE_CHECKING:
    from pipeline.engine.estimates import Plan

KEPT_CHECKPOINTS = PretrainFlags.kept_checkpoints + 2  # the newest, the best one, and the one that is being written
NETWORK_BOUND = 0.2  # the report warns if collectives take more than this part of a step


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """The command line of `pipeline.plan`."""

    preset: str = flag(f"a preset: {', '.join(PRESETS)}", name="--model", metavar="NAME", group="run")
    model_args: tuple[str, ...] = flag("fields of AlbertConfig to replace", (), metavar="FIELD=VALUE")
    objective: Objective | None = flag("sentence loss (default: sop; BERT presets: nsp)", None)
    mask_probability: float = flag("part of the tokens that is predicted", 0.15, metavar="P")
    deepspeed_config: Path = flag("such as ds_configs/base.json", name="--deepspeed_config", metavar="JSON")
    steps: int | None = flag("optimizer steps (default: the paper's 125,000 at a batch of 4096)", None, positive)
    precision: Precision = flag("as for pipeline.pretrain", "auto")
    activation_checkpointing: str = flag("as for pipeline.pretrain", "none", choices=ACTIVATION_CHECKPOINTING)

    nodes: int = flag("number of nodes", 1, positive, group="machines")
    gpus_per_node: int = flag("GPUs of each node", 8, positive)
    gpu: str = flag(f"one of {', '.join(GPUS)}; or any name, with the next two flags", metavar="KIND")
    gpu_memory: float | None = flag("GB of one GPU, in place of the data sheet's", None, above_zero, metavar="GB")
    gpu_tflops: float | None = flag(
        "peak TFLOP/s in the precision of the run, in place of the data sheet's", None, above_zero, metavar="T"
    )
    network_gbit: float | None = flag(
        "Gbit/s of a node in one direction (default: usual for the GPU)", None, above_zero, metavar="G"
    )
    reached_tflops: float | None = flag(
        "TFLOP/s that training reaches on one GPU, as `make gpu` measures it (default: a part of the peak)",
        None,
        above_zero,
        metavar="T",
    )
    price_per_gpu_hour: float | None = flag("price of a GPU for an hour; adds the cost", None, price, metavar="P")


def parse(words: Sequence[str]) -> PlanFlags:
    """Parses the command line. Raises UserError for a mistake."""
    return declare.from_namespace(PlanFlags, parser().parse_all(words))


def parser() -> Parser:
    """The command line of `pipeline.plan`."""
    summary = "Plans a run: memory, time and cost, before a GPU is rented."
    made = Parser(prog="python -m pipeline.plan", description=summary)
    declare.add_flags(made, PlanFlags)
    return made


def resolve(flags: PlanFlags) -> "Plan":
    """Makes the plan of a parsed command line. Raises UserError for what cannot be planned."""
    from pipeline.engine import deepspeed_config
    from pipeline.engine.estimates import Plan, assumed_efficiency
    from pipeline.pretraining.lengths import paper_steps
    from pipeline.training import schedule

    gpu = find_gpu(flags.gpu, flags.network_gbit, flags.gpu_memory, flags.gpu_tflops)
    cluster = Cluster(gpu, flags.nodes, flags.gpus_per_node)
    hardware = Hardware(gpu.name, fp16="fp16" in gpu.tflops, bf16="bf16" in gpu.tflops)
    config = deepspeed_config.load(flags.deepspeed_config)
    fields = parse_fields(flags.model_args)
    if flags.objective is not None:
        fields["sentence_head"] = None if flags.objective == "mlm" else flags.objective
    try:
        model = AlbertConfig.preset(flags.preset, **fields)
        masking = MaskingSettings(mask_probability=flags.mask_probability)
    except ValueError as error:
        raise UserError(str(error)) from None
    engine = deepspeed_config.fit(config, cluster.world_size, hardware, flags.precision)
    if engine.precision not in gpu.tflops:
        raise UserError(f"--precision {engine.precision}: {gpu.name} does not have it; use --precision auto")
    steps = flags.steps or paper_steps(engine.train_batch_size)
    schedule.from_config(engine.json.get("scheduler"), engine.learning_rate, None, steps)
    length = model.max_position_embeddings
    return Plan(
        model=model,
        engine=engine,
        cluster=cluster,
        shape=BatchShape(length, max_pairs(length), masking.max_predictions(length)),
        checkpointing=flags.activation_checkpointing,
        tflops=flags.reached_tflops or assumed_efficiency(model) * gpu.tflops[engine.precision],
        steps=steps,
    )


def report(flags: PlanFlags, plan: "Plan") -> str:
    """The plan for people, several lines."""
    from pipeline.engine.estimates import NETWORK_EFFICIENCY, collective_seconds

    engine, cluster, memory, largest = plan.engine, plan.cluster, plan.memory, plan.largest_micro_batch
    tokens, collectives = engine.train_batch_size * plan.shape.sequence_length, collective_seconds(plan)
    hours, checkpoint = 24 * plan.days * cluster.world_size, BYTES_A_PARAMETER * plan.parameters
    # torch rounds pinned memory up to a power of two.
    copies = cluster.gpus_per_node * 2.0 ** math.ceil(math.log2(checkpoint / cluster.world_size))
    lines = [
        f"{flags.preset}, {plan.parameters:,} parameters, on {cluster.nodes} x {cluster.gpus_per_node} "
        f"{cluster.gpu.name}: {engine.precision}, ZeRO stage {engine.zero_stage}",
        f"batch: {engine.describe_batch(f'rows of {plan.shape.sequence_length}', 'GPU')}; activation checkpointing "
        f"{plan.checkpointing}",
        *(f"note: {note}" for note in engine.notes),
        "",
        "memory of a GPU",
        *(f"  {name:<14}{_gb(size):>12}" for name, size in memory._asdict().items()),
        f"  {'peak':<14}{_gb(memory.total):>12} of {_gb(plan.usable_memory)} usable",
        f"  largest micro-batch that fits: {largest}",
        f"memory of a host: {_gb(copies)} for the copy of a checkpoint while it is written in the background",
        "",
        f"speed of a GPU: {plan.tflops:.0f} TFLOP/s ({'--reached-tflops' if flags.reached_tflops else 'assumed'})",
        f"network of a node: {cluster.gpu.network_gbit:g} Gbit/s, {100 * NETWORK_EFFICIENCY:.0f} % of it reached",
        f"a step: {plan.step_seconds:.2f} s, of which {1000 * collectives:,.1f} ms in collectives",
        f"{tokens / plan.step_seconds:,.0f} tokens/s, MFU {100 * plan.mfu:.0f} %",
        f"{plan.steps:,} steps: {plan.days:.1f} days, {hours:,.0f} GPU-hours",
        f"disk: {_gb(KEPT_CHECKPOINTS * checkpoint)} for {KEPT_CHECKPOINTS} checkpoints",
    ]
    if flags.price_per_gpu_hour is not None:
        lines.append(f"cost: {flags.price_per_gpu_hour * hours:,.0f} at {flags.price_per_gpu_hour:g} for a GPU-hour")
    if not plan.fits:
        use = f"a micro-batch of at most {largest}" if largest else "--activation-checkpointing layer, or another GPU"
        lines.append(f"warning: {_gb(memory.total)} do not fit into the usable {_gb(plan.usable_memory)}; use {use}")
    if (part := collectives / plan.step_seconds) > NETWORK_BOUND:
        remedy = "use a larger batch, fewer nodes, a faster network or a lower ZeRO stage"
        lines.append(f"warning: {100 * part:.0f} % of a step goes to collectives: network-bound; {remedy}")
    return "\n".join(lines)


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints the plan. UserError: a mistake."""
    flags = parse(argv)
    print(report(flags, resolve(flags)))


if __name__ == "__main__":
    sys.exit(main())
