"""What to plan: the command line of `python -m pipeline.plan`, checked and made into one object."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.command_line import Parser, above_zero, positive, price
from common.errors import UserError
from data_prep.format.packing import max_pairs
from model import AlbertConfig
from model.config import ACTIVATION_CHECKPOINTING, PRESETS
from pipeline.data import sampler
from pipeline.data.collate import BatchShape, Objective
from pipeline.data.masking import MaskingSettings
from pipeline.engine import config as engine_config
from pipeline.engine import workarounds
from pipeline.engine.config import EngineConfig, Hardware
from pipeline.engine.hardware import GPUS, Cluster, Gpu, find_gpu
from pipeline.planning import memory
from pipeline.planning.failures import ASSUMED_RESTART_SECONDS, Failures
from pipeline.planning.memory import MemorySettings
from pipeline.planning.time import Speed, assumed_speed, load_benchmark, measured_speed, page_of
from pipeline.pretraining.architecture import parse_fields
from pipeline.pretraining.earlier_start import paper_steps
from pipeline.settings import declare
from pipeline.settings.declare import flag
from pipeline.settings.run import Precision

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
    text_gb: float = flag("size of the corpus in GB", 16.0, above_zero, metavar="G")

    nodes: int = flag("number of nodes", 1, positive, group="machines")
    gpus_per_node: int = flag("GPUs of each node", 8, positive)
    gpu: str = flag(f"one of {', '.join(GPUS)}", metavar="KIND")
    network_gbit: float | None = flag(
        "Gbit/s of a node in one direction (default: usual for the GPU)", None, above_zero, metavar="G"
    )
    benchmark: Path | None = flag(
        "result of `make gpu` on that GPU (default: the one in benchmarks/results, if there is one)",
        None,
        metavar="FILE",
    )
    price_per_gpu_hour: float | None = flag("price of a GPU for an hour; adds the cost", None, price, metavar="P")

    mtbf_hours: float | None = flag(
        "mean hours between failures of one node; gives a save interval",
        None,
        above_zero,
        metavar="H",
        group="failures",
    )
    save_seconds: float | None = flag(
        "seconds that a save stops training (blocked_seconds of a run; default: 1 GB/s)", None, above_zero, metavar="S"
    )
    restart_seconds: float | None = flag(
        f"seconds from the loss of a node to the next new step (default: {ASSUMED_RESTART_SECONDS:.0f})",
        None,
        above_zero,
        metavar="S",
    )


def parse(words: Sequence[str]) -> PlanFlags:
    """Parses the command line. Raises UserError for a mistake."""
    return declare.from_namespace(PlanFlags, parser().parse_all(words))


def parser() -> Parser:
    """The command line of `pipeline.plan`."""
    made = Parser(
        prog="python -m pipeline.plan", description="Plans a run: memory, time and cost, before a GPU is rented."
    )
    declare.add_flags(made, PlanFlags)
    return made


def resolve(flags: PlanFlags) -> PlanRequest:
    """Makes a request of a parsed command line. Raises UserError for what cannot be planned."""
    gpu = find_gpu(flags.gpu, flags.network_gbit)
    cluster = Cluster(gpu, flags.nodes, flags.gpus_per_node)
    hardware = Hardware(gpu.name, fp16="fp16" in gpu.tflops, bf16="bf16" in gpu.tflops)
    config = engine_config.load(flags.deepspeed_config)
    engine = engine_config.fit(config, cluster.world_size, hardware, flags.precision)
    if engine.precision not in gpu.tflops:
        raise UserError(f"--precision {engine.precision}: {gpu.name} does not have it; use --precision auto")
    workarounds.reject_unsafe_settings(engine.json)
    model, masking = _model(flags), _masking(flags)
    length = model.max_position_embeddings
    return PlanRequest(
        name=flags.preset,
        model=model,
        engine=engine,
        cluster=cluster,
        shape=BatchShape(length, max_pairs(length), masking.max_predictions(length)),
        checkpointing=flags.activation_checkpointing,
        speed=_speed(flags, model, engine, gpu),
        steps=flags.steps or paper_steps(engine.train_batch_size),
        text_bytes=flags.text_gb * 1e9,
        failures=_failures(flags),
        price_per_gpu_hour=flags.price_per_gpu_hour,
    )


def _failures(flags: PlanFlags) -> Failures | None:
    """What the flags say about failures."""
    if flags.mtbf_hours is None:
        for flag, value in (("--save-seconds", flags.save_seconds), ("--restart-seconds", flags.restart_seconds)):
            if value is not None:
                raise UserError(f"{flag} has no effect without --mtbf-hours; give both, or leave it out")
        return None
    return Failures(flags.mtbf_hours, flags.save_seconds, flags.restart_seconds or ASSUMED_RESTART_SECONDS)


def _model(flags: PlanFlags) -> AlbertConfig:
    fields = parse_fields(flags.model_args)
    if flags.objective is not None:
        fields["sentence_head"] = None if flags.objective == "mlm" else flags.objective
    try:
        return AlbertConfig.preset(flags.preset, **fields)
    except ValueError as error:
        raise UserError(str(error)) from None


def _masking(flags: PlanFlags) -> MaskingSettings:
    try:
        return MaskingSettings(mask_probability=flags.mask_probability)
    except ValueError as error:
        raise UserError(str(error)) from None


def _speed(flags: PlanFlags, model: AlbertConfig, engine: EngineConfig, gpu: Gpu) -> Speed:
    """The speed in --benchmark, or that on the page of this GPU, or an assumption."""
    path = flags.benchmark or page_of(gpu)
    measured = None
    if path is not None:
        measured = measured_speed(load_benchmark(path), flags.preset, engine.precision, model.max_position_embeddings)
    if flags.benchmark is not None and measured is None:
        raise UserError(
            f"--benchmark {flags.benchmark} has no measurement of {flags.preset} in {engine.precision} with rows of "
            f"{model.max_position_embeddings} tokens; run `make gpu` for it, or leave --benchmark out"
        )
    return measured or assumed_speed(model, gpu.tflops[engine.precision])
