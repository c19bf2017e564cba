"""Summarises and compares runs.

python -m pipeline.evaluate summary --run runs/base
python -m pipeline.evaluate compare --runs runs/base --random runs/random
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, entry_point


def _summary(args: argparse.Namespace) -> str:
    from pipeline.analysis.summary import draw_curves, summarise

    table = summarise(args.run, args.export or args.run / "export", args.curves)
    if args.curves is not None:
        draw_curves(args.run, args.curves)
    return table


def _compare(args: argparse.Namespace) -> str:
    from pipeline.analysis.comparison import compare

    return compare(args.runs, args.random)


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.evaluate", description=__doc__.splitlines()[0])
    commands = p.add_subparsers(dest="command", required=True)
    searched: dict[str, Any] = {"nargs": "+", "type": Path, "metavar": "DIR"}

    command = commands.add_parser("summary", help="a short table of a run")
    command.set_defaults(run_command=_summary)
    command.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of a run")
    command.add_argument("--export", type=Path, metavar="DIR", help="directory of the exported model (RUN/export)")
    command.add_argument("--curves", type=Path, metavar="FILE", help="write a PNG of losses and accuracies")

    command = commands.add_parser("compare", help="metrics beside the majority class and random weights")
    command.set_defaults(run_command=_compare)
    command.add_argument("--runs", required=True, help="where to search", **searched)
    command.add_argument("--random", default=[], help="where to search for runs from random weights", **searched)
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs one of the commands and prints its table. UserError: a mistake."""
    args = parser().parse_args(argv)
    print(args.run_command(args))


if __name__ == "__main__":
    sys.exit(main())
