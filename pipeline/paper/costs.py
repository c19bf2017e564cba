"""Estimates what a table costs before it is run: GPU-hours by the plan, or minutes of processor cores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from model import AlbertConfig
from model.inspection.flops import executed_flops, forward_flops
from pipeline.data.masking import MaskingSettings
from pipeline.paper.experiments import CORPUS_LENGTH, Command
from pipeline.paper.printed_tables import PreTraining
from pipeline.paper.scales import Scale
from pipeline.planning import request as plan_request
from pipeline.planning.plan import RunPlan, make_plan
from pipeline.tasks.registry import find_task

CORE_FLOPS = 1.1e11
"""Operations a second of one core: albert-tiny trained at 31,000 tokens/s on an AMD EPYC with avx512_bf16."""
START_SECONDS = 20.0
"""Seconds that a process takes on that core to start and to save at the end."""
SAMPLE_VOCABULARY = 2000


@dataclass(frozen=True)
class Gpus:
    """The GPUs that the paper's scale is planned on.

    Attributes:
        kind: a key of `pipeline.engine.machine.hardware.GPUS`.
        nodes: their number.
        per_node: GPUs on each node.
    """

    kind: str
    nodes: int
    per_node: int


def pretraining_plan(row: PreTraining, scale: Scale, gpus: Gpus) -> RunPlan:
    """The plan of a row's pre-training. Raises UserError if it cannot be planned."""
    fields = [f"{name}={value}" for name, value in scale.model_fields(row).items()]
    words = ["--model", row.model, *(["--model-args", *fields] if fields else [])]
    words += ["--deepspeed_config", str(scale.configs[row.model]), "--gpu", gpus.kind]
    words += ["--nodes", str(gpus.nodes), "--gpus-per-node", str(gpus.per_node), "--steps", str(scale.steps(row))]
    return make_plan(plan_request.resolve(plan_request.parser().parse_all(words)))


def pretraining_plans(commands: Sequence[Command], scale: Scale, gpus: Gpus) -> dict[PreTraining, RunPlan]:
    """The plans of all rows that the commands pre-train or fine-tune."""
    rows = dict.fromkeys(command.pretraining for command in commands if command.pretraining is not None)
    return {row: pretraining_plan(row, scale, gpus) for row in rows}


def gpu_hours(command: Command, scale: Scale, plans: Mapping[PreTraining, RunPlan]) -> float:
    """GPU-hours of a command: a pre-training by its plan, a fine-tuning of all seeds at the plan's sustained speed."""
    if command.pretraining is None:
        return 0.0
    planned = plans[command.pretraining]
    if command.task is None:
        return planned.gpu_hours
    seeds = scale.seeds if "--seeds" in command.argv else 1
    work = seeds * finetuning_flops(scale.config(command.pretraining), command.task, scale)
    return work / (planned.request.speed.tflops * 1e12) / 3600


def core_minutes(command: Command, scale: Scale) -> float:
    """Minutes that a command takes on one core, without evaluations."""
    if command.pretraining is None:
        return START_SECONDS / 60
    config = replace(
        scale.config(command.pretraining), vocab_size=SAMPLE_VOCABULARY, max_position_embeddings=CORPUS_LENGTH
    )
    if command.task is not None:
        work = finetuning_flops(config, command.task, scale)  # at this scale there is one seed
    else:
        predictions = MaskingSettings().max_predictions(CORPUS_LENGTH)
        work = (
            scale.steps(command.pretraining) * scale.batch * executed_flops(config, CORPUS_LENGTH, predictions, "none")
        )
    return (START_SECONDS + work / CORE_FLOPS) / 60


def finetuning_flops(config: AlbertConfig, task: str, scale: Scale) -> float:
    """Operations of fine-tuning with one seed, if every sequence has the maximal length."""
    flags, defaults = scale.finetuning, find_task(task).hyperparameters
    steps = int(flags.get("steps", defaults.steps or 0))
    sequences = int(flags.get("batch-size", defaults.batch_size)) * find_task(task).sequences_per_sample
    length = int(flags.get("max-length", defaults.max_length))
    return float(steps * sequences * 3 * forward_flops(config, length, 0).total)
