"""What a table will cost before it is run: GPU-hours by the plan, or minutes of a processor's cores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from model import AlbertConfig
from pipeline import plan
from pipeline.flops import executed_flops, forward_flops
from pipeline.tasks.experiments import CORPUS_LENGTH, Command
from pipeline.tasks.paper import PreTraining
from pipeline.tasks.scales import Scale
from pipeline.tasks.task import TASKS

CORE_FLOPS = 1.1e11
"""A second, of one core: albert-tiny pre-trained at 31,000 tokens/s on an AMD EPYC with avx512_bf16."""
START_SECONDS = 20.0
"""Of a process on that core, until it trains; and to save at the end."""
SAMPLE_VOCABULARY = 2000
OPTIONS = {"race": 4}
"""Sequences of one example."""


@dataclass(frozen=True)
class Gpus:
    """What the paper's scale is planned on.

    Attributes:
        kind: a name of `plan_hardware.GPUS`.
        nodes, per_node: how many.
    """

    kind: str
    nodes: int
    per_node: int


def pretraining_plan(row: PreTraining, scale: Scale, gpus: Gpus) -> plan.Plan:
    """The plan of a row's pre-training. Raises UserError for what cannot be planned."""
    fields = [f"{name}={value}" for name, value in scale.model_fields(row).items()]
    words = ["--model", row.model, *(["--model-args", *fields] if fields else [])]
    words += ["--deepspeed_config", str(scale.configs[row.model]), "--gpu", gpus.kind]
    words += ["--nodes", str(gpus.nodes), "--gpus-per-node", str(gpus.per_node), "--steps", str(scale.steps(row))]
    return plan.make_plan(plan.resolve(plan.parser().parse_all(words)))


def pretraining_plans(commands: Sequence[Command], scale: Scale, gpus: Gpus) -> dict[PreTraining, plan.Plan]:
    """The plan of each row that the commands are of."""
    rows = dict.fromkeys(command.pretraining for command in commands if command.pretraining is not None)
    return {row: pretraining_plan(row, scale, gpus) for row in rows}


def gpu_hours(command: Command, scale: Scale, plans: Mapping[PreTraining, plan.Plan]) -> float:
    """GPU-hours of a pre-training by its plan; of a fine-tuning, all seeds together, by the same sustained speed."""
    if command.pretraining is None:
        return 0.0
    planned = plans[command.pretraining]
    if command.task is None:
        return planned.gpu_hours
    seeds = scale.seeds if "--seeds" in command.argv else 1
    work = seeds * finetuning_flops(scale.config(command.pretraining), command.task, scale)
    return work / (planned.request.speed.tflops * 1e12) / 3600


def core_minutes(command: Command, scale: Scale) -> float:
    """Minutes that a command takes of one core; evaluations are not in it."""
    if command.pretraining is None:
        return START_SECONDS / 60
    config = replace(
        scale.config(command.pretraining), vocab_size=SAMPLE_VOCABULARY, max_position_embeddings=CORPUS_LENGTH
    )
    if command.task is not None:
        work = finetuning_flops(config, command.task, scale)  # at this scale there is one seed
    else:
        predictions = round(0.15 * CORPUS_LENGTH)
        work = (
            scale.steps(command.pretraining) * scale.batch * executed_flops(config, CORPUS_LENGTH, predictions, "none")
        )
    return (START_SECONDS + work / CORE_FLOPS) / 60


def finetuning_flops(config: AlbertConfig, task: str, scale: Scale) -> float:
    """Operations of one seed's fine-tuning, every sequence as long as it may be."""
    told, table_14 = scale.finetuning, TASKS[task]
    steps = int(told.get("steps", table_14.steps))
    batch = int(told.get("batch-size", table_14.batch_size)) * OPTIONS.get(task, 1)
    length = int(told.get("max-length", table_14.max_length))
    return float(steps * batch * 3 * forward_flops(config, length, 0).total)
