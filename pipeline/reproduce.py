"""Prints the commands that make a table of the paper, and makes the table of the runs that have ended.

    python -m pipeline.reproduce 2 --data shards/train --eval-data shards/held_out --data-root tasks --out tables \\
        > table-2.sh
    bash -e table-2.sh
    python -m pipeline.reproduce 2 --out tables --collect

With --makefile it prints rules, which `make -j N -f FILE` runs N at a time. Trainings that have ended are not printed,
and the others resume, so the same lines go on after any stop. Runs that two tables with the same --out have in common
are made once. The directory --data-root holds the tasks' official files: GLUE's directories (CoLA, SST-2, ...), there
or in glue/; squad/train-v1.1.json and so on; race/train, race/dev, race/test. Tasks without files are named and left
out.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from common.command_line import Parser, entry_point, hours
from common.errors import UserError
from pipeline.analysis.experiments import Paths, as_makefile, as_shell, commands
from pipeline.analysis.finished_runs import digest_of
from pipeline.analysis.printed_tables import TABLES, Table, find_table
from pipeline.checkpoint.run_records import SETTINGS, read_record
from pipeline.tasks.registry import TASKS
from pipeline.tasks.task import Task

PAPER_SCALE = "paper"


def find_task_data(
    root: Path, fits: Callable[[Task, Collection[str]], bool] = lambda task, splits: "train" in splits
) -> dict[str, Path]:
    """The directory of each task with files below `root`, by name.

    Args:
        fits: whether the splits in a directory are enough for a task; by default, training files.
    """
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
    p = Parser(
        prog="python -m pipeline.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("table", metavar="TABLE", help=f"one of {', '.join(TABLES)}")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="all files are written below DIR/SCALE")
    p.add_argument(
        "--scale",
        default=PAPER_SCALE,
        metavar="SCALE",
        help="paper (default), or a fraction of the paper's pre-training steps, such as 0.01",
    )
    p.add_argument("--data-root", type=Path, metavar="DIR", help="the tasks' official files")
    p.add_argument("--data", type=Path, metavar="DIR", help="shards to pre-train on")
    p.add_argument("--eval-data", type=Path, metavar="DIR", help="shards of held-out documents")
    p.add_argument("--additional-data", type=Path, metavar="DIR", help="shards of the rows with more data")
    p.add_argument(
        "--max-hours", type=hours, metavar="H", help="time limit of every pre-training (Table 6: equal time)"
    )
    p.add_argument("--hostfile", type=Path, metavar="FILE", help="hostfile for the DeepSpeed launcher")
    p.add_argument("--makefile", action="store_true", help="print rules for `make -j` instead of shell commands")
    p.add_argument("--collect", action="store_true", help="make the table of the runs that have ended")
    return p


def resolve(args: argparse.Namespace, table: Table) -> Paths:
    """The paths of a command line. Raises UserError for a mistake."""
    if args.data_root is None or not args.data_root.is_dir():
        raise UserError(f"--data-root {args.data_root} is no directory; name the one with the tasks' official files")
    if args.data is None or args.eval_data is None:
        raise UserError("--data and --eval-data are both needed; make shards with `python -m data_prep shards`")
    if args.additional_data is None and any(row.additional_data for row in table.pretrainings):
        raise UserError(f"table {table.name} has rows with more data; name its shards with --additional-data")
    for name in ("data", "eval_data", "additional_data"):
        directory = getattr(args, name)
        if directory is not None and not (directory / "manifest.json").exists():
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} {directory} holds no shards; make them with `python -m data_prep shards`")
    hosts = () if args.hostfile is None else ("--hostfile", str(args.hostfile))
    return Paths(
        root=args.out / args.scale,
        data=args.data,
        eval_data=args.eval_data,
        additional_data=args.additional_data,
        tasks=find_task_data(args.data_root),
        launcher=("deepspeed", *hosts, "--module"),
    )


def check_runs(table: Table, paths: Paths) -> None:
    """Raises UserError if a row was pre-trained on other shards below `paths.root`. It would not be run again."""
    for row in table.pretrainings:
        shards, run = paths.shards(row), paths.root / row.slug / "pretrain"
        if (run / SETTINGS).exists() and read_record(run).data != digest_of(shards):
            raise UserError(f"{run} read other shards than {shards}; choose another --out")


def collect(table: Table, root: Path, scale: float, additional_data: Path | None) -> str:
    """Makes the ensembles and the table of the runs below `root` that have ended, and returns what is printed."""
    from pipeline.analysis.ensemble import write_ensembles
    from pipeline.analysis.paper_tables import make_tables

    printed = []
    ended = [root / row.slug / task / "results.json" for row in table.pretrainings for task in table.tasks]
    runs = [results.parent for results in ended if results.exists()]
    if runs and any(row.ensemble for row in table.rows):
        printed.append(write_ensembles(runs, root / f"ensemble-{table.name}"))
    out = root / f"table-{table.name}"
    return "\n".join([*printed, make_tables([root], out, [table.name], additional_data, scale)])


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints the commands of a table, or makes it. UserError: a mistake."""
    args = parser().parse_all(argv)
    table, scale = find_table(args.table), scale_of(args.scale)
    if args.collect:
        print(collect(table, args.out / args.scale, scale, args.additional_data))
        return
    paths = resolve(args, table)
    check_runs(table, paths)
    planned = commands(table, paths, scale, args.max_hours)
    left = [command for command in planned if not command.done.exists()]
    print(f"# {table.caption}, scale {args.scale}: {len(left)} of {len(planned)} commands left to run")
    for task in (task for task in table.tasks if task not in paths.tasks):
        print(f"# {task} is left out: {args.data_root} has no training file of it")
    print(as_makefile(left) if args.makefile else as_shell(left))


if __name__ == "__main__":
    sys.exit(main())
