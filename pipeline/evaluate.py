"""Summarises and compares runs.

python -m pipeline.evaluate summary --run runs/base
python -m pipeline.evaluate tables --runs runs --out tables
python -m pipeline.evaluate ensemble --runs runs/large/rte runs/base/rte --out runs/ensemble
python -m pipeline.evaluate compare --runs runs/base --random runs/random --out comparison
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.command_line import Parser, entry_point


def _summary(args: argparse.Namespace) -> str:
    from pipeline.analysis.summary import summarise

    return summarise(args.run, args.export or args.run / "export")


def _tables(args: argparse.Namespace) -> str:
    from pipeline.analysis.paper_tables import make_tables
    from pipeline.analysis.printed_tables import find_table

    names = [find_table(name).name for name in args.tables]
    return make_tables(args.runs, args.out, names, args.additional_data, overwrite=args.overwrite)


def _ensemble(args: argparse.Namespace) -> str:
    from pipeline.analysis.ensemble import write_ensembles

    return write_ensembles(args.runs, args.out, args.overwrite)


def _compare(args: argparse.Namespace) -> str:
    from pipeline.analysis.comparison import write_comparison

    return write_comparison(args.runs, args.random, args.out, args.overwrite)


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.evaluate", description=__doc__.splitlines()[0])
    commands = p.add_subparsers(dest="command", required=True)

    def add(name: str, function: Callable[[argparse.Namespace], str], summary: str, writes: bool = True) -> Parser:
        command = commands.add_parser(name, help=summary)
        command.set_defaults(run_command=function)
        if name != "summary":
            command.add_argument("--runs", nargs="+", required=True, type=Path, metavar="DIR", help="where to search")
            command.add_argument("--out", required=writes, type=Path, metavar="DIR", help="directory to write")
            command.add_argument("--overwrite", action="store_true", help="replace another directory at --out")
        return command

    command = add("summary", _summary, "a short table of a pre-training run")
    command.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of pipeline.pretrain")
    command.add_argument("--export", type=Path, metavar="DIR", help="directory of the exported model (RUN/export)")
    command = add("tables", _tables, "the paper's tables with measured and printed values")
    command.add_argument("--tables", nargs="+", default=[], metavar="N", help="numbers of the tables, 2 to 10 (all)")
    command.add_argument(
        "--additional-data", type=Path, metavar="DIR", help="shards of the runs with more data (Table 7, Figure 2)"
    )
    add("ensemble", _ensemble, "the average of several runs' predictions for each task, and its submissions")
    command = add("compare", _compare, "metrics beside the majority class and random weights", writes=False)
    command.add_argument(
        "--random",
        nargs="+",
        default=[],
        type=Path,
        metavar="DIR",
        help="where to search for runs from random weights",
    )
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs one of the commands and prints its table. UserError: a mistake."""
    args = parser().parse_args(argv)
    print(args.run_command(args))


if __name__ == "__main__":
    sys.exit(main())
