"""Turns a table of the paper into the commands that make it, by pure functions of its rows and paths.

A table is a list of rows; a row says what a model is pre-trained with. All sweeps (size, sharing, embedding, sentence
loss, dropout, data) therefore work in the same way: each distinct row is pre-trained once, and fine-tuned on each of
the table's tasks. Rows that two tables have in common are run once for both.

    ROOT/SLUG/pretrain           a row's pre-training
    ROOT/SLUG/TASK               its fine-tuning
    ROOT/ensemble-N/TASK         the ensembles of table N
    ROOT/table-N                 the table
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import PREFIX
from pipeline.paper.printed_tables import PreTraining, Table
from pipeline.tasks.registry import TASKS

SEEDS = 5
"""Fine-tuning runs of each model; their median is reported."""


@dataclass(frozen=True)
class Paths:
    """The directories and launchers of all commands.

    Attributes:
        root: directory of everything that is made.
        data: shards to pre-train on.
        eval_data: shards of held-out documents.
        additional_data: shards of the rows with more data; None if the table has no such row.
        tasks: the directory of each task's files; missing tasks are not run.
        launcher: the words before the module of a training, such as ("deepspeed", "--hostfile", "hosts", "--module").
        python: the words before the module of a command with one process.
    """

    root: Path
    data: Path
    eval_data: Path
    additional_data: Path | None
    tasks: Mapping[str, Path]
    launcher: tuple[str, ...]
    python: tuple[str, ...]

    def shards(self, row: PreTraining) -> Path:
        """The shards to pre-train a row on."""
        return self.additional_data if row.additional_data and self.additional_data else self.data


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: for the log.
        argv: its words.
        done: a file that exists once the command has ended; None if the command is always run.
    """

    name: str
    argv: tuple[str, ...]
    done: Path | None = None

    @property
    def is_done(self) -> bool:
        """Whether the command has ended in an earlier start and need not run again."""
        return self.done is not None and self.done.exists()


Stage = tuple[Command, ...]
"""Commands that may run at the same time."""


def describe_commands(caption: str, stages: Sequence[Stage]) -> str:
    """The commands for a shell, each below a comment with its name."""
    commands = [command for stage in stages for command in stage]
    lines = [f"# {caption}"]
    for command in commands:
        lines += ["", f"# {command.name}{', done' if command.is_done else ''}", shlex.join(command.argv)]
    left = sum(not command.is_done for command in commands)
    return "\n".join([*lines, "", f"# {left} of {len(commands)} commands left to run"])


def stages(table: Table, paths: Paths, max_hours: float | None = None) -> list[Stage]:
    """All commands that `table` needs, in order; each stage waits for the stage before it.

    Args:
        max_hours: a limit on every pre-training in addition to the steps, for Table 6 on other hardware than the
            paper's.
    """
    rows, name = table.pretrainings, table.name
    tasks = [task for task in table.tasks if task in paths.tasks]
    later = [task for task in tasks if TASKS[task].starts_from == "mnli" and "mnli" in tasks]
    first = [task for task in tasks if task not in later]
    found: list[Stage] = [
        tuple(_pretraining(row, paths, max_hours) for row in rows),
        tuple(_finetuning(row, task, "pretrain", paths) for row in rows for task in first),
        tuple(_finetuning(row, task, "mnli/seed-0", paths) for row in rows for task in later),
    ]
    evaluate = (*paths.python, f"{PREFIX}pipeline.evaluate")
    if any(row.ensemble for row in table.rows) and tasks:
        runs = [str(paths.root / row.slug / task) for row in rows for task in tasks]
        words = (*evaluate, "ensemble", "--runs", *runs, "--out", str(paths.root / f"ensemble-{name}"))
        found.append((Command("ensemble", words),))
    words = (*evaluate, "tables", "--runs", str(paths.root), "--tables", name)
    words += ("--out", str(paths.root / f"table-{name}"))
    if any(row.additional_data for row in rows):
        words += ("--additional-data", str(paths.additional_data))
    return [stage for stage in [*found, (Command("table", words),)] if stage]


def _pretraining(row: PreTraining, paths: Paths, max_hours: float | None) -> Command:
    """The command that pre-trains a row."""
    out = paths.root / row.slug / "pretrain"
    argv = [*paths.launcher, f"{PREFIX}pipeline.pretrain", "--model", row.model]
    if fields := row.model_fields:
        argv += ["--model-args", *(f"{name}={value}" for name, value in fields.items())]
    argv += ["--objective", row.objective, "--data", str(paths.shards(row)), "--eval-data", str(paths.eval_data)]
    argv += ["--deepspeed_config", f"ds_configs/{row.model.partition('-')[2]}.json"]
    argv += ["--output", str(out), "--steps", str(row.steps), "--log-interval", "200"]
    argv += ["--eval-interval", "1000", "--save-interval", "5000"]
    if max_hours is not None:
        argv += ["--max-hours", f"{max_hours:g}"]
    return Command(f"pre-train {row.slug}", tuple(argv), out / "done")


def _finetuning(row: PreTraining, task: str, init: str, paths: Paths) -> Command:
    """The command that fine-tunes a row's model on one task, from the run `init` of the same row."""
    home = paths.root / row.slug
    argv = [*paths.launcher, f"{PREFIX}pipeline.finetune", "--task", task, "--init", str(home / init)]
    argv += ["--data", str(paths.tasks[task]), "--output", str(home / task), "--seeds", str(SEEDS)]
    # results.json is the summary of the seeds, and is written last.
    return Command(f"fine-tune {row.slug} on {task}", tuple(argv), home / task / "results.json")
