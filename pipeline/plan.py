"""Plans a run: its memory, time and cost, before a GPU is rented.

    python -m pipeline.plan --model albert-xxlarge --deepspeed_config ds_configs/xxlarge-80gb.json \\
        --nodes 8 --gpus-per-node 8 --gpu h100

Prints parameters, bytes on a GPU by kind, the largest micro-batch that fits, the time of a step and of the run, disk
space, warnings, and the fastest settings that fit. Without --reached-tflops the speed of the GPU is an assumption,
which is printed.
"""

import dataclasses
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
from pipeline.data.collate import BatchShape, Objective
from pipeline.data.masking import MaskingSettings
from pipeline.engine.hardware import GPUS, Cluster, Hardware, find_gpu
from pipeline.settings import declare
from pipeline.settings.declare import flag
from pipeline.settings.pretrain import PretrainFlags
from pipeline.settings.run import Precision

if TYPE_CHECKING:
    from pipeline.planning.plan import Plan


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """The command line of `pipeline.plan`."""

    preset: str | None = flag(
        f"a preset: {', '.join(PRESETS)} (default: the student of --teacher)",
        None,
        name="--model",
        metavar="NAME",
        group="run",
    )
    teacher: Path | None = flag("the teacher of a distillation, as for pipeline.pretrain", None, metavar="DIR")
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
    made = Parser(
        prog="python -m pipeline.plan", description="Plans a run: memory, time and cost, before a GPU is rented."
    )
    declare.add_flags(made, PlanFlags)
    return made


def resolve(flags: PlanFlags) -> "Plan":
    """Makes the plan of a parsed command line. Raises UserError for what cannot be planned."""
    from model.counts import parameter_counts  # torch takes seconds to import
    from pipeline.engine import config as engine_config
    from pipeline.engine import workarounds
    from pipeline.planning.plan import Plan
    from pipeline.planning.time import Speed, assumed_speed
    from pipeline.pretraining.architecture import parse_fields
    from pipeline.pretraining.lengths import paper_steps
    from pipeline.pretraining.student import find_teacher
    from pipeline.training import schedule
    from pipeline.training.schedule import Length

    gpu = find_gpu(flags.gpu, flags.network_gbit, flags.gpu_memory, flags.gpu_tflops)
    cluster = Cluster(gpu, flags.nodes, flags.gpus_per_node)
    hardware = Hardware(gpu.name, fp16="fp16" in gpu.tflops, bf16="bf16" in gpu.tflops)
    config = engine_config.load(flags.deepspeed_config)
    fields = parse_fields(flags.model_args)
    if flags.objective is not None:
        fields["sentence_head"] = None if flags.objective == "mlm" else flags.objective
    if flags.preset is None and flags.teacher is None:
        raise UserError("give --model NAME, or --teacher DIR for a student of its sizes")
    teacher = find_teacher(flags.teacher, PretrainFlags.teacher_loss, PretrainFlags.teacher_layers)
    try:
        if flags.preset is None:
            assert teacher is not None
            model = dataclasses.replace(teacher.student_config(), **fields)
        else:
            model = AlbertConfig.preset(flags.preset, **fields)
        masking = MaskingSettings(mask_probability=flags.mask_probability)
    except ValueError as error:
        raise UserError(str(error)) from None
    parameters = parameter_counts(model).total
    engine = engine_config.fit(config, cluster.world_size, hardware, flags.precision, parameters)
    if engine.precision not in gpu.tflops:
        raise UserError(f"--precision {engine.precision}: {gpu.name} does not have it; use --precision auto")
    workarounds.reject_unsafe_settings(engine.json)
    steps = flags.steps or paper_steps(engine.train_batch_size)
    schedule.of_lengths(engine.json.get("scheduler"), engine.learning_rate, None, (Length(0, steps),))
    length = model.max_position_embeddings
    return Plan(
        name=flags.preset or f"a student of {flags.teacher}",
        model=model,
        engine=engine,
        cluster=cluster,
        shape=BatchShape(length, max_pairs(length), masking.max_predictions(length)),
        checkpointing=flags.activation_checkpointing,
        speed=assumed_speed(model, gpu.tflops[engine.precision])
        if flags.reached_tflops is None
        else Speed(flags.reached_tflops, "--reached-tflops"),
        steps=steps,
        text_bytes=flags.text_gb * 1e9,
        price_per_gpu_hour=flags.price_per_gpu_hour,
        teacher=None if teacher is None else teacher.weights.config,
    )


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints the plan. UserError: a mistake."""
    flags = parse(argv)
    from pipeline.planning.plan import report

    print(report(resolve(flags)))


if __name__ == "__main__":
    sys.exit(main())
