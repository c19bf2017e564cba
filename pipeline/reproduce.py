"""Makes tables of the paper: runs every training that they need, then writes them.

The claims behind the tables, tested with small models and three seeds on two cores (docs/study.md):

    python -m pipeline.reproduce claims --out reproduction [--documents DIR...]

TABLE is 3, 4, 5 or 8 for the claim of that table, masks, or claims for all of them. Without --documents,
made by `python -m data_prep extract`, it makes the sample corpus. Set OMP_NUM_THREADS=1: two runs share the cores.

A table at the paper's scale: its commands, without running them:

    python -m pipeline.reproduce 2 --scale paper --dry-run --data shards/train --eval-data shards/held_out \\
        --data-root tasks --out reproduction

The same command resumes what was stopped; runs that are done are not run again. Runs that two tables with the same
--out have in common are made once. The directory --data-root holds the tasks' official files: GLUE's directories (CoLA,
SST-2, ...), there or in glue/; squad/train-v1.1.json and so on; race/train, race/dev, race/test. Tasks without files
are named and left out.

Exit status: 0 done; 2 a mistake in the command line; 75 stopped by a signal; otherwise that of the failed command.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from common.command_line import Parser, entry_point, hours, positive
from common.errors import UserError
from pipeline.analysis.finished_runs import digest_of
from pipeline.checkpoint.run_records import SETTINGS, read_settings
from pipeline.paper import claims, claims_page
from pipeline.paper.claims import CLAIMS, SMALL, find_claims
from pipeline.paper.experiments import Paths, describe_commands, stages
from pipeline.paper.printed_tables import TABLES, Table, find_table
from pipeline.paper.runner import Runner
from pipeline.tasks.registry import TASKS
from pipeline.tasks.task import Task

CLAIMS_SCALE = "small"
PAPER_SCALE = "paper"
TABLE_FLAGS = ("data_root", "data", "eval_data", "additional_data", "max_hours", "hostfile")
CLAIM_FLAGS = ("documents", "seeds")


def find_task_data(
    root: Path, fits: Callable[[Task, Collection[str]], bool] = lambda task, splits: "train" in splits
) -> dict[str, Path]:
    """The directory of each task with files below `root`, by name.

    Args:
        fits: whether the splits in a directory are enough for a task; by default, training files.
    """
    found = {}
    for task in TASKS.values():
        if task.files is None:
            continue
        for directory in (root / name for name in task.files.archives):
            if directory.is_dir() and fits(task, task.files.find(task, directory)):
                found[task.name] = directory
                break
    return found


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="python -m pipeline.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = f"scale small: {', '.join(CLAIMS)}, claims (all of these); scale paper: {', '.join(TABLES)}"
    p.add_argument("table", metavar="TABLE", help=f"{names}; 7 and 8 also make Figure 2")
    p.add_argument(
        "--scale",
        choices=(CLAIMS_SCALE, PAPER_SCALE),
        default=CLAIMS_SCALE,
        help="small: the claims with small models (default); paper: the paper's models",
    )
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="all files are written below DIR/SCALE")
    p.add_argument(
        "--documents", nargs="+", type=Path, metavar="DIR", help="scale small: text by `data_prep extract` (the sample)"
    )
    p.add_argument("--seeds", type=positive, metavar="N", help="scale small: runs of each side (3)")
    p.add_argument("--data-root", type=Path, metavar="DIR", help="the tasks' official files")
    p.add_argument("--data", type=Path, metavar="DIR", help="shards to pre-train on")
    p.add_argument("--eval-data", type=Path, metavar="DIR", help="shards of held-out documents")
    p.add_argument("--additional-data", type=Path, metavar="DIR", help="shards of the rows with more data")
    p.add_argument("--dry-run", action="store_true", help="print the commands, and run nothing")
    p.add_argument(
        "--jobs", type=positive, metavar="N", help="number of commands that run at the same time (paper: 1, small: 2)"
    )
    p.add_argument(
        "--max-hours", type=hours, metavar="H", help="time limit of every pre-training (Table 6: equal time)"
    )
    p.add_argument("--hostfile", type=Path, metavar="FILE", help="hostfile for the DeepSpeed launcher (scale paper)")
    return p


def resolve(args: argparse.Namespace) -> tuple[Table, Paths]:
    """The table and the paths of a command line. Raises UserError for a mistake."""
    table = find_table(args.table)
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
    paths = Paths(
        root=args.out / PAPER_SCALE,
        data=args.data,
        eval_data=args.eval_data,
        additional_data=args.additional_data,
        tasks=find_task_data(args.data_root),
        launcher=("deepspeed", *hosts, "--module"),
        python=(sys.executable, "-m"),
    )
    return table, paths


def check_runs(table: Table, paths: Paths) -> None:
    """Raises UserError if a row was pre-trained on other shards below `paths.root`. It would not be run again."""
    for row in table.pretrainings:
        shards, run = paths.shards(row), paths.root / row.slug / "pretrain"
        if (run / SETTINGS).exists() and read_settings(run / SETTINGS).get("data") != digest_of(shards):
            raise UserError(f"{run} read other shards than {shards}; choose another --out")


def resolve_claims(args: argparse.Namespace) -> claims.Setting:
    """Where the claims of a command line are made. Raises UserError for a mistake."""
    documents = tuple(args.documents or ())
    for directory in documents:
        if not (directory / "documents.json").exists():
            raise UserError(f"--documents {directory} holds no documents; make them with `python -m data_prep extract`")
    root = args.out / CLAIMS_SCALE
    return claims.Setting(root, documents, SMALL, args.seeds or 3, (sys.executable, "-m"))


def _check_flags(args: argparse.Namespace) -> None:
    """Raises UserError for a flag that the scale does not have."""
    small = args.scale == CLAIMS_SCALE
    for name in TABLE_FLAGS if small else CLAIM_FLAGS:
        if getattr(args, name) is not None:
            other = PAPER_SCALE if small else CLAIMS_SCALE
            raise UserError(f"--{name.replace('_', '-')} is a flag of scale {other}, not of scale {args.scale}")


def make_claims(args: argparse.Namespace) -> int:
    """Runs or prints the commands of claims, and returns the exit status. UserError: a mistake."""
    chosen, setting = find_claims(args.table), resolve_claims(args)
    planned = claims.stages(chosen, setting)
    if args.dry_run:
        print(describe_commands(f"claims: {', '.join(claim.name for claim in chosen)}", planned))
        return 0
    claims.prepare(chosen, setting)
    if status := Runner(setting.root / "logs", args.jobs or 2).run(planned):
        return status
    written = claims_page.write(setting.root, setting.root / "claims")
    print(f"written: {', '.join(map(str, written))}")
    return 0


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs or prints the commands of a table, and returns the exit status. UserError: a mistake."""
    args = parser().parse_all(argv)
    _check_flags(args)
    if args.scale == CLAIMS_SCALE:
        return make_claims(args)
    table, paths = resolve(args)
    check_runs(table, paths)
    planned = stages(table, paths, args.max_hours)
    for task in (task for task in table.tasks if task not in paths.tasks):
        print(f"# {task} is left out: {args.data_root} has no training file of it")
    if args.dry_run:
        print(describe_commands(f"{table.caption}, scale {args.scale}", planned))
        return 0
    return Runner(paths.root / "logs", args.jobs or 1).run(planned)


if __name__ == "__main__":
    sys.exit(main())
