"""What a run will need and how long it will take, before a GPU is rented.

    python -m pipeline.plan --model albert-xxlarge --deepspeed_config ds_configs/xxlarge.json \\
        --nodes 8 --gpus-per-node 8 --gpu h100

Prints parameters, bytes on a GPU by kind, the largest micro-batch that fits, the time of a step and of the run, disk,
what will not fit or will wait for the network, and the fastest settings of those that fit. The speed comes from a
result file of benchmarks/train_step.py (--benchmark) measured on that GPU, else from an assumption that is printed.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from data_prep.command_line import Parser
from data_prep.errors import UserError
from model import AlbertConfig
from model.config import ACTIVATION_CHECKPOINTING, PRESETS
from model.parameter_counts import parameter_counts
from pipeline import defects, engine_config, masking, plan_memory, plan_time
from pipeline.engine_config import EngineConfig, Hardware
from pipeline.plan_hardware import GPUS, Cluster, find_gpu
from pipeline.plan_memory import Engine, Memory, RowShape
from pipeline.plan_time import Speed, StepTime
from pipeline.settings import PAPER_BATCH, PAPER_STEPS, parse_fields

USABLE = 0.92
"""Share of a GPU's memory that is planned with; the rest goes to the CUDA context, NCCL and fragments."""
KEPT_CHECKPOINTS = 7  # the newest five, the best one, and the one that is being written
BYTES_A_PARAMETER_SAVED = 12  # fp32 weights and both moments
PAPER_TEXT_GB, TEXT_BYTES_A_TOKEN = 16.0, 4.5
NETWORK_BOUND = 0.2
EQUALLY_FAST = 1.01  # less is beyond what these estimates can tell


@dataclass(frozen=True)
class Request:
    """What is to be planned.

    Attributes:
        name: of the preset.
        model: architecture.
        engine: the DeepSpeed JSON, fitted to the ranks.
        cluster: where it would run.
        shape: of a row.
        checkpointing: of activations.
        speed: how fast a GPU computes.
        steps: optimizer steps of the run.
        text_bytes: of the corpus.
    """

    name: str
    model: AlbertConfig
    engine: EngineConfig
    cluster: Cluster
    shape: RowShape
    checkpointing: str
    speed: Speed
    steps: int
    text_bytes: float

    @property
    def memory_engine(self) -> Engine:
        """As `plan_memory` wants the settings."""
        zero = self.engine.json.get("zero_optimization", {})
        return Engine(
            precision=self.engine.precision,
            zero_stage=self.engine.zero_stage,
            world_size=self.cluster.world_size,
            checkpointing=self.checkpointing,
            accumulation=self.engine.accumulation_steps,
            accumulates=self.engine.json.get("data_types", {}).get("grad_accum_dtype"),
            bucket=int(zero.get("reduce_bucket_size", plan_memory.DEFAULT_BUCKET)),
            overlap=bool(zero.get("overlap_comm", False)),
            max_live=int(zero.get("stage3_max_live_parameters", 1e9)),
            offload=(zero.get("offload_optimizer") or {}).get("device", "none") != "none",
        )


@dataclass(frozen=True)
class Plan:
    """The answer. Bytes are of one GPU unless they are on disk; seconds are of one optimizer step."""

    request: Request
    parameters: int
    memory: Memory
    available: float
    largest_micro_batch: int
    step: StepTime
    tokens_per_second: float
    mfu: float
    days: float
    gpu_hours: float
    data_bytes: float
    checkpoint_bytes: float

    @property
    def fits(self) -> bool:
        """Whether the planned micro-batch fits into a GPU's memory."""
        return self.memory.total <= self.available


def make_plan(request: Request) -> Plan:
    """Works the request out."""
    config, engine, cluster, shape = request.model, request.engine, request.cluster, request.shape
    parameters = parameter_counts(config).total
    available = USABLE * cluster.gpu.memory_bytes
    accumulation, rows = engine.accumulation_steps, engine.micro_batch_size * engine.accumulation_steps
    collectives = plan_time.collective_seconds(parameters, engine.precision, engine.zero_stage, accumulation, cluster)
    step = plan_time.step_time(config, shape, request.checkpointing, rows, request.speed.tflops, collectives)
    days = request.steps * step.total / 86400
    return Plan(
        request=request,
        parameters=parameters,
        memory=plan_memory.memory(config, engine.micro_batch_size, shape, request.memory_engine),
        available=available,
        largest_micro_batch=plan_memory.largest_micro_batch(config, shape, request.memory_engine, available),
        step=step,
        tokens_per_second=engine.train_batch_size * shape.sequence_length / step.total,
        mfu=plan_time.model_flops_utilisation(config, shape, rows, step.total, cluster.gpu.tflops[engine.precision]),
        days=days,
        gpu_hours=days * 24 * cluster.world_size,
        data_bytes=2 * request.text_bytes / TEXT_BYTES_A_TOKEN,
        checkpoint_bytes=KEPT_CHECKPOINTS * BYTES_A_PARAMETER_SAVED * parameters,
    )


def warnings_of(plan: Plan) -> list[str]:
    """What will not work, or not well, each with what to do."""
    found = []
    if not plan.fits:
        remedy = (
            f"use a micro-batch of at most {plan.largest_micro_batch}"
            if plan.largest_micro_batch
            else "use --activation-checkpointing layer, a higher ZeRO stage or a larger GPU"
        )
        found.append(
            f"{_gb(plan.memory.total)} do not fit into the {_gb(plan.available)} that a GPU has to spare; {remedy}"
        )
    measured_on = plan.request.speed.measured_on
    if measured_on is not None and not plan_time.same_kind(measured_on, plan.request.cluster.gpu):
        found.append(f"the speed was measured on {measured_on}, not on {plan.request.cluster.gpu.name}")
    share = plan.step.collectives / plan.step.total
    if share > NETWORK_BOUND:
        found.append(
            f"{100 * share:.0f} % of a step goes to collectives: network-bound; use a larger batch, fewer nodes, a "
            "faster network or a lower ZeRO stage"
        )
    return found


def rows_per_gpu(request: Request) -> int:
    """Rows of one step on each GPU."""
    return request.engine.train_batch_size // request.cluster.world_size


def micro_batches(request: Request) -> list[int]:
    """Micro-batches that divide a GPU's rows, the smallest first."""
    rows = rows_per_gpu(request)
    return [size for size in range(1, rows + 1) if rows % size == 0]


def alternatives(request: Request) -> Iterator[Request]:
    """The same batch on the same GPUs with every ZeRO stage, checkpointing and micro-batch that divides it."""
    for stage in (0, 1, 2, 3):
        zero = {**request.engine.json.get("zero_optimization", {}), "stage": stage}
        json = {**request.engine.json, "zero_optimization": zero}
        if not _can_train(json, request.engine.precision):
            continue
        for checkpointing in ACTIVATION_CHECKPOINTING:
            for micro_batch in micro_batches(request):
                engine = replace(
                    request.engine,
                    micro_batch_size=micro_batch,
                    accumulation_steps=rows_per_gpu(request) // micro_batch,
                    json=json,
                )
                yield replace(request, engine=engine, checkpointing=checkpointing)


def _can_train(json: dict[str, Any], precision: str) -> bool:
    """Whether pretrain takes a JSON, which stage 0 may make wrong, and DeepSpeed can sum its gradients."""
    try:
        defects.refuse_what_is_wrong(json)
    except UserError:
        return False
    summed_as_trained = json.get("data_types", {}).get("grad_accum_dtype") in (None, precision)
    return summed_as_trained or json["zero_optimization"]["stage"] > 0


def fastest(request: Request) -> Plan | None:
    """The fastest alternative that fits; of equally fast ones the one with the largest micro-batch, then the lowest
    ZeRO stage above 0. None where nothing fits."""
    fitting = [plan for plan in map(make_plan, alternatives(request)) if plan.fits]
    least = min((plan.step.total for plan in fitting), default=0.0)

    def rank(plan: Plan) -> tuple[int, bool, int]:
        engine = plan.request.engine
        return -engine.micro_batch_size, engine.zero_stage == 0, engine.zero_stage

    return min((plan for plan in fitting if plan.step.total <= EQUALLY_FAST * least), key=rank, default=None)


def report(plan: Plan) -> str:
    """The plan for a person."""
    request, engine, cluster = plan.request, plan.request.engine, plan.request.cluster
    used = [f"  {name:<14}{_gb(size):>12}" for name, size in asdict(plan.memory).items()]
    where = f"{cluster.nodes} x {cluster.gpus_per_node} {cluster.gpu.name}"
    dividing = max((rows for rows in micro_batches(request) if rows <= plan.largest_micro_batch), default=0)
    lines = [
        f"{request.name}, {plan.parameters:,} parameters, on {where}: {engine.precision}, ZeRO stage "
        f"{engine.zero_stage}",
        f"batch: {engine.train_batch_size} rows of {request.shape.sequence_length} = {engine.micro_batch_size} x "
        f"{engine.accumulation_steps} accumulated x {cluster.world_size} GPUs; activation checkpointing "
        f"{request.checkpointing}",
        *(f"note: {note}" for note in engine.notes),
        "",
        "memory of a GPU",
        *used,
        f"  {'together':<14}{_gb(plan.memory.total):>12} of {_gb(plan.available)} to spare",
        f"  largest micro-batch that fits: {plan.largest_micro_batch}; of those that divide the batch {dividing}",
        "",
        f"speed of a GPU: {request.speed.tflops:.0f} TFLOP/s ({request.speed.source})",
        f"network of a node: {cluster.gpu.network_gbit:g} Gbit/s, {100 * plan_time.NETWORK_SHARE:.0f} % of it reached",
        f"a step: {plan.step.total:.2f} s, of which {1000 * plan.step.collectives:,.1f} ms in collectives",
        f"{plan.tokens_per_second:,.0f} tokens/s, MFU {100 * plan.mfu:.0f} %",
        f"{request.steps:,} steps: {plan.days:.1f} days, {plan.gpu_hours:,.0f} GPU-hours",
        f"disk: {_gb(plan.data_bytes)} of shards for {_gb(request.text_bytes)} of text, assumed to have "
        f"{TEXT_BYTES_A_TOKEN} bytes a token; {_gb(plan.checkpoint_bytes)} for {KEPT_CHECKPOINTS} checkpoints",
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


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.plan", description=__doc__.splitlines()[0])
    p.add_argument("--model", required=True, metavar="NAME", help=f"a preset: {', '.join(PRESETS)}")
    p.add_argument("--model-args", nargs="+", default=[], metavar="FIELD=VALUE", help="fields of AlbertConfig")
    p.add_argument("--objective", choices=("sop", "nsp", "mlm"), help="default: sop (ALBERT), nsp (BERT presets)")
    p.add_argument("--deepspeed_config", required=True, type=Path, metavar="JSON", help="e.g. ds_configs/base.json")
    p.add_argument("--nodes", type=_positive, default=1, metavar="N", help="(1)")
    p.add_argument("--gpus-per-node", type=_positive, default=8, metavar="N", help="(8)")
    p.add_argument("--gpu", required=True, metavar="KIND", help=", ".join(GPUS))
    p.add_argument("--network-gbit", type=float, metavar="G", help="of a node, one direction (usual for the GPU)")
    p.add_argument("--steps", type=_positive, metavar="N", help="default: the paper's 125,000 at a batch of 4096")
    p.add_argument("--precision", choices=("auto", "config", "fp16", "bf16", "fp32"), default="auto")
    p.add_argument("--activation-checkpointing", choices=ACTIVATION_CHECKPOINTING, default="none")
    p.add_argument("--benchmark", type=Path, metavar="FILE", help="result of benchmarks.train_step on that GPU")
    p.add_argument("--text-gb", type=float, default=PAPER_TEXT_GB, metavar="G", help="of text in the corpus (16)")
    return p


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


_positive.__name__ = "positive whole number"


def resolve(args: argparse.Namespace) -> Request:
    """The request of a parsed command line. Raises UserError for what cannot be planned."""
    gpu = find_gpu(args.gpu, args.network_gbit)
    for flag, value in (("--network-gbit", args.network_gbit), ("--text-gb", args.text_gb)):
        if value is not None and not value > 0:
            raise UserError(f"{flag} {value:g} is not above 0; give a number above 0")
    cluster = Cluster(gpu, args.nodes, args.gpus_per_node)
    hardware = Hardware(gpu.name, fp16="fp16" in gpu.tflops, bf16="bf16" in gpu.tflops)
    config = engine_config.load(args.deepspeed_config)
    engine = engine_config.fit(config, cluster.world_size, hardware, args.precision)
    if engine.precision not in gpu.tflops:
        raise UserError(f"--precision {engine.precision}: {gpu.name} does not have it; use --precision auto")
    defects.refuse_what_is_wrong(engine.json)
    fields = parse_fields(args.model_args)
    if args.objective is not None:
        fields["sentence_head"] = None if args.objective == "mlm" else args.objective
    try:
        model = AlbertConfig.preset(args.model, **fields)
    except ValueError as error:
        raise UserError(str(error)) from None
    length = model.max_position_embeddings
    speed = plan_time.assumed_speed(model, gpu.tflops[engine.precision])
    if args.benchmark is not None:
        measured = plan_time.measured_speed(plan_time.load_benchmark(args.benchmark), args.model, engine.precision)
        if measured is None:
            raise UserError(
                f"--benchmark {args.benchmark} has no measurement of {args.model} in {engine.precision}; "
                "run benchmarks.train_step for it, or leave --benchmark out"
            )
        speed = measured
    return Request(
        name=args.model,
        model=model,
        engine=engine,
        cluster=cluster,
        shape=RowShape(length, masking.max_predictions(length), max(1, length // 16)),
        checkpointing=args.activation_checkpointing,
        speed=speed,
        steps=args.steps or max(1, round(PAPER_STEPS * PAPER_BATCH / engine.train_batch_size)),
        text_bytes=args.text_gb * 1e9,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    try:
        plan = make_plan(resolve(parser().parse_all(sys.argv[1:] if argv is None else argv)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
