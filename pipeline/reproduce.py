"""Prints the commands that make a table of the paper, and makes the table of the runs that have ended.

    python -m pipeline.reproduce 2 --data shards/train --eval-data shards/held_out --data-root tasks --out tables \\
        > table-2.sh
    bash -e table-2.sh
    python -m pipeline.reproduce 2 --out tables --collect

Each distinct row is pre-trained once, and fine-tuned on each of the table's tasks. A training that has ended says so
and does nothing, and any other one resumes, so the same lines go on after any stop. Runs that two tables with the same
--out have in common are made once. The directory --data-root holds the tasks' official files: GLUE's directories (CoLA,
SST-2, ...), there or in glue/; squad/train-v1.1.json and so on; race/train, race/dev, race/test. Tasks without files
are named and left out.
"""

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from common import PREFIX
from common.command_line import Parser, entry_point, hours
from common.errors import UserError
from common.text import printable
from pipeline.analysis.paper_tables import TABLES, PaperPretraining, Table, find_table, markdown
from pipeline.tasks.registry import TASKS
from pipeline.tasks.task import Task

PAPER_SCALE = "paper"
SEEDS = 5
"""Fine-tuning runs of each model; their median is reported."""

Command = list[str]
"""The words of one training."""


def find_task_data(
    root: Path, fits: Callable[[Task, Collection[str]], bool] = lambda task, splits: "train" in splits
) -> dict[str, Path]:
    """The directory of each task below `root`, by name, if its splits are enough: by default, training files."""
    directories = {}
    for task in TASKS.values():
        if task.files is None:
            continue
        for directory in (root / name for name in task.files.archives):
            if directory.is_dir() and fits(task, task.files.find(task, directory)):
                directories[task.name] = directory
                break
    return directories


def scale_of(text: str) -> float:
    """The fraction of the paper's steps that --scale names."""
    try:
        scale = 1.0 if text == PAPER_SCALE else float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 1:
        raise UserError(f"--scale {text} is neither {PAPER_SCALE} nor a fraction of its steps; give one such as 0.01")
    return scale


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.reproduce", description=__doc__)
    p.add_argument("table", metavar="TABLE", help=f"one of {', '.join(TABLES)}")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="all files are written below DIR/SCALE")
    scale = "paper (default), or a fraction of the paper's pre-training steps, such as 0.01"
    p.add_argument("--scale", default=PAPER_SCALE, metavar="SCALE", help=scale)
    p.add_argument("--data-root", type=Path, metavar="DIR", help="the tasks' official files")
    p.add_argument("--data", type=Path, metavar="DIR", help="shards to pre-train on")
    p.add_argument("--eval-data", type=Path, metavar="DIR", help="shards of held-out documents")
    p.add_argument("--additional-data", type=Path, metavar="DIR", help="shards of the rows with more data")
    time_limit = "time limit of every pre-training (Table 6: equal time)"
    p.add_argument("--max-hours", type=hours, metavar="H", help=time_limit)
    p.add_argument("--hostfile", type=Path, metavar="FILE", help="hostfile for the DeepSpeed launcher")
    p.add_argument("--collect", action="store_true", help="make the table of the runs that have ended")
    return p


def check(args: argparse.Namespace, table: Table) -> None:
    """Raises UserError for a mistake in a command line that asks for commands."""
    if args.data_root is None or not args.data_root.is_dir():
        raise UserError(f"--data-root {args.data_root} is no directory; name the one with the tasks' official files")
    if args.data is None or args.eval_data is None:
        raise UserError("--data and --eval-data are both needed; make shards with `python -m data_prep shards`")
    if args.additional_data is None and any(row.additional_data for row in table.pretrainings):
        raise UserError(f"table {table.name} has rows with more data; name its shards with --additional-data")


def commands(table: Table, args: argparse.Namespace, task_data: Mapping[str, Path]) -> dict[str, Command]:
    """All trainings that `table` needs, by their directory below the root; each comes after the one it starts from.

    `task_data` has the directory of each task's files; missing tasks are not run.
    """
    tasks = [task for task in table.tasks if task in task_data]
    from_mnli = [task for task in tasks if TASKS[task].starts_from in tasks]
    made = {f"{row.slug}/pretrain": _pretraining(row, args) for row in table.pretrainings}
    for task in sorted(tasks, key=lambda task: task in from_mnli):
        start = Path(TASKS[task].starts_from or "", "seed-0") if task in from_mnli else Path("pretrain")
        for row in table.pretrainings:
            words = ["--task", task, "--init", str(_root(args) / row.slug / start), "--data", str(task_data[task])]
            words += ["--output", str(_root(args) / row.slug / task), "--seeds", str(SEEDS)]
            made[f"{row.slug}/{task}"] = [*_launcher(args), f"{PREFIX}pipeline.finetune", *words]
    return made


def _pretraining(row: PaperPretraining, args: argparse.Namespace) -> Command:
    words = [*_launcher(args), f"{PREFIX}pipeline.pretrain", "--model", row.model]
    if fields := row.model_fields:
        words += ["--model-args", *(f"{name}={value}" for name, value in fields.items())]
    data = args.additional_data if row.additional_data else args.data
    words += ["--objective", row.objective, "--data", str(data), "--eval-data", str(args.eval_data)]
    words += ["--deepspeed_config", f"ds_configs/{row.model.partition('-')[2]}.json"]
    words += ["--output", str(_root(args) / row.slug / "pretrain")]
    words += ["--steps", str(max(1, round(scale_of(args.scale) * row.steps)))]
    words += ["--log-interval", "200", "--eval-interval", "1000", "--save-interval", "5000"]
    if args.max_hours is not None:
        words += ["--max-hours", f"{args.max_hours:g}"]
    return words


def _root(args: argparse.Namespace) -> Path:
    """The directory of everything that is made."""
    place: Path = args.out / args.scale
    return place


def _launcher(args: argparse.Namespace) -> Command:
    return ["deepspeed", *(() if args.hostfile is None else ("--hostfile", str(args.hostfile))), "--module"]


def _comment(text: str) -> str:
    """A line of a shell script that does nothing, whatever `text` holds: a path may hold line breaks."""
    return f"# {printable(text)}"


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints the commands of a table, or makes it. UserError: a mistake."""
    args = parser().parse_all(argv)
    table, scale = find_table(args.table), scale_of(args.scale)
    if args.collect:
        said = table.caption if scale == 1 else f"{table.caption}; here {scale:g} of the paper's steps"
        print(markdown(dataclasses.replace(table, caption=said), _root(args)))
        return
    check(args, table)
    task_data = find_task_data(args.data_root)
    made = commands(table, args, task_data)
    print(_comment(f"{table.caption}, {scale:g} of the paper's steps: {len(made)} trainings"))
    for task in (task for task in table.tasks if task not in task_data):
        print(_comment(f"{task} is left out: {args.data_root} has no training file of it"))
    for name, words in made.items():
        print(f"\n{_comment(name)}\n{shlex.join(words)}")


if __name__ == "__main__":
    sys.exit(main())
