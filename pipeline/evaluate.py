"""Summarises and compares runs, and scores pre-trained models on minimal pairs.

python -m pipeline.evaluate summary --run runs/base
python -m pipeline.evaluate compare --runs runs/base --random runs/random
python -m pipeline.evaluate minimal-pairs --run runs/base --pairs blimp/data
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, entry_point, positive
from common.files import atomic, places


def _summary(args: argparse.Namespace) -> str:
    from pipeline.analysis.summary import draw_curves, summarise

    table = summarise(args.run, args.export or args.run / "export", args.curves)
    if args.curves is not None:
        draw_curves(args.run, args.curves)
    return table


def _compare(args: argparse.Namespace) -> str:
    from pipeline.analysis.comparison import compare

    return compare(args.runs, args.random)


def _minimal_pairs(args: argparse.Namespace) -> str:
    from pipeline.analysis import minimal_pairs
    from pipeline.finetuning.predictor import open_predictor

    if args.out is not None:
        places.check_new_file(args.out)
    pairs = minimal_pairs.read_pairs(args.pairs, args.limit)
    predictor = open_predictor(args.run)
    model = predictor.require_pretrained("to score sentences")
    result = minimal_pairs.evaluate(model, predictor.vocabulary, pairs, str(args.run), args.score)
    if args.out is not None:
        atomic.write_text(args.out, json.dumps(dataclasses.asdict(result), indent=2) + "\n")
    return result.table()


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

    command = commands.add_parser("minimal-pairs", help="how often a pre-trained model prefers the good sentence")
    command.set_defaults(run_command=_minimal_pairs)
    run = "a run of pre-training (its newest checkpoint), or an export"
    command.add_argument("--run", required=True, type=Path, metavar="RUN", help=run)
    files = (
        "a directory of BLiMP's .jsonl files, or a .jsonl file with the fields good and bad, and phenomenon and "
        "paradigm if there are several; also compressed (.gz, .xz, .zst, .bz2)"
    )
    command.add_argument("--pairs", required=True, type=Path, metavar="PATH", help=files)
    command.add_argument("--limit", type=positive, metavar="N", help="only the first N pairs of each paradigm")
    masks = "mask with each token the later ones of its word, or the token alone (default: within-word)"
    command.add_argument("--score", choices=("within-word", "plain"), default="within-word", help=masks)
    command.add_argument("--out", type=Path, metavar="FILE", help="write the results to this new JSON file, too")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs one of the commands and prints its table. UserError: a mistake."""
    args = parser().parse_args(argv)
    print(args.run_command(args))


if __name__ == "__main__":
    sys.exit(main())
