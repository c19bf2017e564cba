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
from pipeline.analysis.printed_tables import PreTraining, Table
from pipeline.tasks.registry import TASKS

SEEDS = 5
"""Fine-tuning runs of each model; their median is reported."""


@dataclass(frozen=True)
class Paths:
    """The directories and the launcher of all commands.

    Attributes:
        root: directory of everything that is made.
        data: shards to pre-train on.
        eval_data: shards of held-out documents.
        additional_data: shards of the rows with more data; None if the table has no such row.
        tasks: the directory of each task's files; missing tasks are not run.
        launcher: the words before the module of a training, such as ("deepspeed", "--hostfile", "hosts", "--module").
    """

    root: Path
    data: Path
    eval_data: Path
    additional_data: Path | None
    tasks: Mapping[str, Path]
    launcher: tuple[str, ...]

    def shards(self, row: PreTraining) -> Path:
        """The shards to pre-train a row on."""
        return self.additional_data if row.additional_data and self.additional_data else self.data


@dataclass(frozen=True)
class Command:
    """One training.

    Attributes:
        name: its directory below the root, such as "albert-base/mnli".
        argv: its words.
        done: a file that exists once it has ended.
        after: the name of the training that it starts from; None for a pre-training.
    """

    name: str
    argv: tuple[str, ...]
    done: Path
    after: str | None = None


def commands(table: Table, paths: Paths, scale: float = 1.0, max_hours: float | None = None) -> list[Command]:
    """All trainings that `table` needs; each comes after the one that it starts from.

    Args:
        scale: the steps of each pre-training, as a fraction of the paper's.
        max_hours: a limit on every pre-training in addition to the steps, for Table 6 on other hardware than the
            paper's.
    """
    tasks = [task for task in table.tasks if task in paths.tasks]
    starts = {task: "mnli" if TASKS[task].starts_from == "mnli" and "mnli" in tasks else "pretrain" for task in tasks}
    first = [task for task in tasks if starts[task] == "pretrain"]
    later = [task for task in tasks if starts[task] == "mnli"]
    return [
        *(_pretraining(row, paths, scale, max_hours) for row in table.pretrainings),
        *(_finetuning(row, task, "pretrain", paths) for row in table.pretrainings for task in first),
        *(_finetuning(row, task, "mnli", paths) for row in table.pretrainings for task in later),
    ]


def _pretraining(row: PreTraining, paths: Paths, scale: float, max_hours: float | None) -> Command:
    out = paths.root / row.slug / "pretrain"
    argv = [*paths.launcher, f"{PREFIX}pipeline.pretrain", "--model", row.model]
    if fields := row.model_fields:
        argv += ["--model-args", *(f"{name}={value}" for name, value in fields.items())]
    argv += ["--objective", row.objective, "--data", str(paths.shards(row)), "--eval-data", str(paths.eval_data)]
    argv += ["--deepspeed_config", f"ds_configs/{row.model.partition('-')[2]}.json"]
    argv += ["--output", str(out), "--steps", str(row.steps_at(scale)), "--log-interval", "200"]
    argv += ["--eval-interval", "1000", "--save-interval", "5000"]
    if max_hours is not None:
        argv += ["--max-hours", f"{max_hours:g}"]
    return Command(f"{row.slug}/pretrain", tuple(argv), out / "done")


def _finetuning(row: PreTraining, task: str, start: str, paths: Paths) -> Command:
    """The fine-tuning of a row's model on one task, from its run `start`; of several seeds the first."""
    home = paths.root / row.slug
    init = home / start if start == "pretrain" else home / start / "seed-0"
    argv = [*paths.launcher, f"{PREFIX}pipeline.finetune", "--task", task, "--init", str(init)]
    argv += ["--data", str(paths.tasks[task]), "--output", str(home / task), "--seeds", str(SEEDS)]
    # results.json is the summary of the seeds, and is written last.
    return Command(f"{row.slug}/{task}", tuple(argv), home / task / "results.json", f"{row.slug}/{start}")


def as_shell(left: Sequence[Command]) -> str:
    """The commands for a shell, in an order in which they can run."""
    return "\n".join(f"\n# {command.name}\n{shlex.join(command.argv)}" for command in left)


def as_makefile(left: Sequence[Command]) -> str:
    """The commands as rules for `make -j`; each waits for the one that it starts from, unless this one is done."""
    names = [command.name for command in left]
    rules = [f".PHONY: all {' '.join(names)}", f"all: {' '.join(names)}"]
    for command in left:
        after = command.after if command.after in names else ""
        rules.append(f"{command.name}: {after}\n\t{shlex.join(command.argv).replace('$', '$$')}")
    return "\n".join(rules)
