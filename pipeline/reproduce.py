"""Makes a table of the paper: every pre-training and fine-tuning that it needs, and then the table itself.

What it would run on eight H100, and what that would cost:

    python -m pipeline.reproduce 2 --scale paper --dry-run --data shards/train --eval-data shards/held_out \\
        --data-root tasks --out reproduction

The same at a scale that two cores finish within an hour, pre-trained on the sample corpus:

    python -m pipeline.reproduce 2 --scale tiny --data-root tasks --out reproduction

Started again it goes on where it was: what is done is not run again. Runs that two tables share are made once, if both
are given the same --out. DATA-ROOT holds the tasks' official files: GLUE's directories (CoLA, SST-2, ...), there or in
glue/; squad/train-v1.1.json and so on; race/train, race/dev, race/test. Tasks without files are left out and named.

Exit status: 0 done; 2 a mistake in what was asked for; 75 stopped by a signal; else that of the command that failed.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.command_line import Parser
from data_prep.errors import UserError
from pipeline.jobs import Runner, is_done
from pipeline.plan_hardware import GPUS
from pipeline.tasks import costs, glue, race, squad
from pipeline.tasks.experiments import Places, Stage, missing_tasks, stages
from pipeline.tasks.paper import TABLES, Table, find_table
from pipeline.tasks.scales import SCALES, TINY, Scale
from pipeline.tasks.task import TASKS, Task


def find_task_data(root: Path) -> dict[str, Path]:
    """The directory of each task whose training files are below `root`."""
    found = {}
    for task in TASKS.values():
        for directory in (root / name for name in _subdirectories(task)):
            if directory.is_dir() and "train" in _files(task, directory):
                found[task.name] = directory
                break
    return found


def _subdirectories(task: Task) -> tuple[str, ...]:
    if task.name.startswith("squad"):
        return ("squad", "SQuAD", task.name, ".")
    return ("race", "RACE", ".") if task.name == "race" else ("glue", "GLUE", ".")


def _files(task: Task, directory: Path) -> set[str]:
    if task.name == "race":
        return set(race.find_files(directory))
    if task.name.startswith("squad"):
        return set(squad.find_files(task, directory))
    return set(glue.find_files(task, directory))


def dry_run(table: Table, scale: Scale, planned: Sequence[Stage], gpus: costs.Gpus | None) -> str:
    """The commands as a shell would take them, each under a line that says what it is and costs.

    Args:
        gpus: what the cost is planned on; None for a processor.
    """
    commands = [command for stage in planned for command in stage]
    if gpus is None:
        cost, unit = [costs.core_minutes(command, scale) for command in commands], "minutes of one core"
    else:
        plans = costs.pretraining_plans(commands, scale, gpus)
        cost, unit = [costs.gpu_hours(command, scale, plans) for command in commands], f"GPU-hours of {gpus.kind}"
    lines = [f"# {table.caption}, scale {scale.name}"]
    for command, amount in zip(commands, cost):
        notes = [command.name, *([f"{amount:,.1f} {unit}"] if amount else []), *(["done"] if is_done(command) else [])]
        lines += ["", f"# {', '.join(notes)}", shlex.join(command.argv)]
    left = [amount for command, amount in zip(commands, cost) if not is_done(command)]
    return "\n".join(
        [*lines, "", f"# {len(left)} of {len(commands)} commands left to run, about {sum(left):,.0f} {unit}"]
    )


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="python -m pipeline.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("table", metavar="TABLE", help=f"one of {', '.join(TABLES)}; 7 and 8 also make Figure 2")
    p.add_argument("--scale", choices=tuple(SCALES), default=TINY.name, help="(tiny)")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="everything is made below DIR/SCALE")
    p.add_argument("--data-root", required=True, type=Path, metavar="DIR", help="the tasks' official files")
    p.add_argument("--data", type=Path, metavar="DIR", help="shards to pre-train on (tiny: of the sample corpus)")
    p.add_argument("--eval-data", type=Path, metavar="DIR", help="shards of held-out documents")
    p.add_argument("--additional-data", type=Path, metavar="DIR", help="shards of the rows that have more data")
    p.add_argument("--dry-run", action="store_true", help="print the commands and their cost, and run nothing")
    p.add_argument("--jobs", type=int, metavar="N", help="commands at a time (tiny: 2, one a core; paper: 1)")
    p.add_argument("--max-hours", type=float, metavar="H", help="of every pre-training (Table 6: equal time)")
    p.add_argument("--random-weights", action="store_true", help="also fine-tune without pre-training, and compare")
    p.add_argument("--hostfile", type=Path, metavar="FILE", help="of the DeepSpeed launcher (paper)")
    p.add_argument("--gpu", default="h100", choices=tuple(GPUS), help="kind to plan the cost with (h100)")
    p.add_argument("--nodes", type=int, default=1, metavar="N", help="to plan the cost with (1)")
    p.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="to plan the cost with (8)")
    return p


def resolve(args: argparse.Namespace) -> tuple[Table, Scale, Places]:
    """What is to be made, how large, and where. Raises UserError for a mistake."""
    table, scale = find_table(args.table), SCALES[args.scale]
    for flag, value in (("--jobs", args.jobs), ("--nodes", args.nodes), ("--gpus-per-node", args.gpus_per_node)):
        if value is not None and value < 1:
            raise UserError(f"{flag} {value} is not at least 1")
    if not args.data_root.is_dir():
        raise UserError(f"--data-root {args.data_root} is no directory; name the one with the tasks' official files")
    if (args.data is None) != (args.eval_data is None):
        raise UserError("--data and --eval-data go together; give both, or at scale tiny neither")
    more = any(row.pretraining is not None and row.pretraining.additional_data for row in table.rows)
    if args.data is None and scale is not TINY:
        raise UserError("--data and --eval-data are missing; make shards with `python -m data_prep shards`")
    if args.data is not None and more and args.additional_data is None:
        raise UserError(f"table {table.name} has rows with more data; name its shards with --additional-data")
    for flag, directory in (
        ("--data", args.data),
        ("--eval-data", args.eval_data),
        ("--additional-data", args.additional_data),
    ):
        if directory is not None and not (directory / "manifest.json").exists():
            raise UserError(f"{flag} {directory} holds no shards; make them with `python -m data_prep shards`")
    python = (sys.executable, "-m")
    if scale is TINY:
        launcher = python
    else:
        hosts = () if args.hostfile is None else ("--hostfile", str(args.hostfile))
        launcher = ("deepspeed", *hosts, "--module")
    places = Places(
        root=args.out / scale.name,
        data=args.data,
        eval_data=args.eval_data,
        additional_data=args.additional_data,
        tasks=find_task_data(args.data_root),
        launcher=launcher,
        python=python,
    )
    return table, scale, places


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    try:
        args = parser().parse_all(sys.argv[1:] if argv is None else argv)
        table, scale, places = resolve(args)
        planned = stages(table, scale, places, args.max_hours, args.random_weights)
        gpus = None if scale is TINY else costs.Gpus(args.gpu, args.nodes, args.gpus_per_node)
        for task in missing_tasks(table, places):
            print(f"# {task} is left out: there is no training file of it in {args.data_root}")
        if args.dry_run:
            print(dry_run(table, scale, planned, gpus))
            return 0
        return Runner(places.root / "logs", args.jobs or (2 if scale is TINY else 1)).run(planned)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
