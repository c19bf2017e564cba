"""What to plan: the command line of `python -m pipeline.plan`, checked and made into one object."""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from common.command_line import Parser
from common.errors import UserError
from data_prep.format.packing import max_pairs
from model import AlbertConfig
from model.config import ACTIVATION_CHECKPOINTING, PRESETS
from pipeline.data import sampler
from pipeline.data.collate import BatchShape
from pipeline.data.masking import MaskingSettings
from pipeline.engine import config as engine_config
from pipeline.engine import workarounds
from pipeline.engine.config import PRECISION_CHOICES, EngineConfig, Hardware
from pipeline.engine.machine.hardware import GPUS, Cluster, Gpu, find_gpu
from pipeline.planning import memory
from pipeline.planning.failures import ASSUMED_RESTART_SECONDS, Failures
from pipeline.planning.memory import MemorySettings
from pipeline.planning.time import Speed, assumed_speed, load_benchmark, measured_speed, page_of
from pipeline.pretraining.architecture import parse_fields
from pipeline.pretraining.masking_flags import add_mask_probability
from pipeline.pretraining.run_length import paper_steps
from pipeline.training.flags import positive, price

PAPER_TEXT_GB = 16.0
MAX_COMPARED = 256
"""Numbers of micro-steps, and small micro-batches, that are compared."""


@dataclass(frozen=True)
class PlanRequest:
    """A run to plan.

    Attributes:
        name: of the preset.
        model: architecture.
        engine: the DeepSpeed JSON, fitted to the ranks.
        cluster: the GPUs.
        shape: of a batch.
        checkpointing: of activations: "none", "ffn" or "layer".
        speed: of a GPU.
        steps: optimizer steps of the run.
        text_bytes: size of the corpus.
        failures: of nodes; None to plan for none.
        price_per_gpu_hour: in any currency; None if it is not known.
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
    failures: Failures | None = None
    price_per_gpu_hour: float | None = None

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
            bucket=int(zero.get("reduce_bucket_size", memory.DEFAULT_BUCKET)),
            overlap=bool(zero.get("overlap_comm", False)),
            max_live=int(zero.get("stage3_max_live_parameters", 1e9)),
            offload=(zero.get("offload_optimizer") or {}).get("device", "none") != "none",
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


def parser() -> Parser:
    """The command line of `pipeline.plan`."""
    p = Parser(
        prog="python -m pipeline.plan", description="Plans a run: memory, time and cost, before a GPU is rented."
    )
    p.add_argument("--model", required=True, metavar="NAME", help=f"a preset: {', '.join(PRESETS)}")
    p.add_argument(
        "--model-args", nargs="+", default=[], metavar="FIELD=VALUE", help="fields of AlbertConfig to replace"
    )
    p.add_argument("--objective", choices=("sop", "nsp", "mlm"), help="sentence loss (sop; BERT presets: nsp)")
    add_mask_probability(p)
    p.add_argument("--deepspeed_config", required=True, type=Path, metavar="JSON", help="such as ds_configs/base.json")
    p.add_argument("--nodes", type=positive, default=1, metavar="N", help="number of nodes (1)")
    p.add_argument("--gpus-per-node", type=positive, default=8, metavar="N", help="GPUs of each node (8)")
    p.add_argument("--gpu", required=True, metavar="KIND", help=f"one of {', '.join(GPUS)}")
    p.add_argument(
        "--network-gbit", type=float, metavar="G", help="Gbit/s of a node in one direction (default: usual for the GPU)"
    )
    p.add_argument(
        "--steps", type=positive, metavar="N", help="optimizer steps (default: the paper's 125,000 at a batch of 4096)"
    )
    p.add_argument(
        "--precision",
        choices=PRECISION_CHOICES,
        default="auto",
        help="as for pipeline.pretrain",
    )
    p.add_argument(
        "--activation-checkpointing", choices=ACTIVATION_CHECKPOINTING, default="none", help="as for pipeline.pretrain"
    )
    p.add_argument(
        "--benchmark",
        type=Path,
        metavar="FILE",
        help="result of `make gpu` on that GPU (default: the one in benchmarks/results, if there is one)",
    )
    p.add_argument("--text-gb", type=float, default=PAPER_TEXT_GB, metavar="G", help="size of the corpus in GB (16)")
    p.add_argument(
        "--mtbf-hours", type=float, metavar="H", help="mean hours between failures of one node; gives a save interval"
    )
    p.add_argument(
        "--save-seconds",
        type=float,
        metavar="S",
        help="seconds that a save stops training (blocked_seconds of a run; default: 1 GB/s)",
    )
    p.add_argument(
        "--restart-seconds",
        type=float,
        metavar="S",
        help=f"seconds from the loss of a node to the next new step ({ASSUMED_RESTART_SECONDS:.0f})",
    )
    p.add_argument("--price-per-gpu-hour", type=price, metavar="P", help="price of a GPU for an hour; adds the cost")
    return p


def resolve(args: argparse.Namespace) -> PlanRequest:
    """Makes a request of a parsed command line. Raises UserError for what cannot be planned."""
    gpu = find_gpu(args.gpu, args.network_gbit)
    for flag, value in (
        ("--network-gbit", args.network_gbit),
        ("--text-gb", args.text_gb),
        ("--mtbf-hours", args.mtbf_hours),
        ("--save-seconds", args.save_seconds),
        ("--restart-seconds", args.restart_seconds),
    ):
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{flag} {value:g} is not above 0 and finite; give a number above 0")
    cluster = Cluster(gpu, args.nodes, args.gpus_per_node)
    hardware = Hardware(gpu.name, fp16="fp16" in gpu.tflops, bf16="bf16" in gpu.tflops)
    config = engine_config.load(args.deepspeed_config)
    engine = engine_config.fit(config, cluster.world_size, hardware, args.precision)
    if engine.precision not in gpu.tflops:
        raise UserError(f"--precision {engine.precision}: {gpu.name} does not have it; use --precision auto")
    workarounds.reject_unsafe_settings(engine.json)
    model, masking = _model(args), _masking(args)
    length = model.max_position_embeddings
    return PlanRequest(
        name=args.model,
        model=model,
        engine=engine,
        cluster=cluster,
        shape=BatchShape(length, max_pairs(length), masking.max_predictions(length)),
        checkpointing=args.activation_checkpointing,
        speed=_speed(args, model, engine, gpu),
        steps=args.steps or paper_steps(engine.train_batch_size),
        text_bytes=args.text_gb * 1e9,
        failures=_failures(args),
        price_per_gpu_hour=args.price_per_gpu_hour,
    )


def _failures(args: argparse.Namespace) -> Failures | None:
    """What the flags say about failures."""
    if args.mtbf_hours is None:
        for flag, value in (("--save-seconds", args.save_seconds), ("--restart-seconds", args.restart_seconds)):
            if value is not None:
                raise UserError(f"{flag} has no effect without --mtbf-hours; give both, or leave it out")
        return None
    return Failures(args.mtbf_hours, args.save_seconds, args.restart_seconds or ASSUMED_RESTART_SECONDS)


def _model(args: argparse.Namespace) -> AlbertConfig:
    fields = parse_fields(args.model_args)
    if args.objective is not None:
        fields["sentence_head"] = None if args.objective == "mlm" else args.objective
    try:
        return AlbertConfig.preset(args.model, **fields)
    except ValueError as error:
        raise UserError(str(error)) from None


def _masking(args: argparse.Namespace) -> MaskingSettings:
    try:
        return MaskingSettings(mask_probability=args.mask_probability)
    except ValueError as error:
        raise UserError(str(error)) from None


def _speed(args: argparse.Namespace, model: AlbertConfig, engine: EngineConfig, gpu: Gpu) -> Speed:
    """The speed in --benchmark, or that on the page of this GPU, or an assumption."""
    path = args.benchmark or page_of(gpu)
    measured = None
    if path is not None:
        measured = measured_speed(load_benchmark(path), args.model, engine.precision, model.max_position_embeddings)
    if args.benchmark is not None and measured is None:
        raise UserError(
            f"--benchmark {args.benchmark} has no measurement of {args.model} in {engine.precision} with rows of "
            f"{model.max_position_embeddings} tokens; run `make gpu` for it, or leave --benchmark out"
        )
    return measured or assumed_speed(model, gpu.tflops[engine.precision])
