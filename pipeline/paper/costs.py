"""Prints the commands of a table, and at the paper's scale the GPU-hours that the plan gives them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model import AlbertConfig
from model.counts import forward_flops
from pipeline.paper.experiments import Command, Stage
from pipeline.paper.printed_tables import PreTraining, Table
from pipeline.paper.runner import is_done
from pipeline.paper.scales import Scale
from pipeline.planning import request as plan_request
from pipeline.planning.plan import RunPlan, make_plan
from pipeline.tasks.registry import find_task


@dataclass(frozen=True)
class Gpus:
    """The GPUs that the paper's scale is planned on.

    Attributes:
        kind: a key of `pipeline.engine.hardware.GPUS`.
        nodes: their number.
        per_node: GPUs on each node.
    """

    kind: str
    nodes: int
    per_node: int


def dry_run(table: Table, scale: Scale, planned: Sequence[Stage], gpus: Gpus | None) -> str:
    """The commands for a shell, each below a comment with its name and cost.

    Args:
        gpus: of the estimated cost; None for no estimate.
    """
    commands = [command for stage in planned for command in stage]
    plans = {} if gpus is None else pretraining_plans(commands, scale, gpus)
    lines, hours = [f"# {table.caption}, scale {scale.name}"], 0.0
    for command in commands:
        notes = [command.name]
        if gpus is not None and (amount := gpu_hours(command, scale, plans)):
            notes.append(f"{amount:,.1f} GPU-hours of {gpus.kind}")
            hours += 0.0 if is_done(command) else amount
        lines += ["", f"# {', '.join([*notes, *(['done'] if is_done(command) else [])])}", shlex.join(command.argv)]
    left = sum(not is_done(command) for command in commands)
    cost = "" if gpus is None else f", about {hours:,.0f} GPU-hours of {gpus.kind}"
    return "\n".join([*lines, "", f"# {left} of {len(commands)} commands left to run{cost}"])


def pretraining_plan(row: PreTraining, scale: Scale, gpus: Gpus) -> RunPlan:
    """The plan of a row's pre-training. Raises UserError if it cannot be planned."""
    fields = [f"{name}={value}" for name, value in scale.model_fields(row).items()]
    words = ["--model", row.model, *(["--model-args", *fields] if fields else [])]
    words += ["--deepspeed_config", str(scale.configs[row.model]), "--gpu", gpus.kind]
    words += ["--nodes", str(gpus.nodes), "--gpus-per-node", str(gpus.per_node), "--steps", str(scale.steps(row))]
    return make_plan(plan_request.resolve(plan_request.parse(words)))


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


def finetuning_flops(config: AlbertConfig, task: str, scale: Scale) -> float:
    """Operations of fine-tuning with one seed, if every sequence has the maximal length."""
    flags, defaults = scale.finetuning, find_task(task).hyperparameters
    steps = int(flags.get("steps", defaults.steps or 0))
    sequences = int(flags.get("batch-size", defaults.batch_size)) * find_task(task).sequences_per_sample
    length = int(flags.get("max-length", defaults.max_length))
    return float(steps * sequences * 3 * forward_flops(config, length, 0).total)
