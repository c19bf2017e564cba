"""Prints rows as training reads them, with swaps and masks, or statistics of many masks.

    python -m pipeline.show DIR [-n 3] [--row N] [--epoch 0] [--seed 0] [--objective {sop,nsp,mlm}]
    python -m pipeline.show DIR --masks 1000 [--out DIR/stats]

`python -m data_prep show` prints what a row stores. This command prints what training draws when it reads the row. That
depends on seed, epoch and row. With --masks N it counts over N rows: the lengths of n-grams as drawn and as realised,
the predicted tokens and their replacements, and the swapped pairs. It also writes a plot to --out.
"""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import owned
from data_prep.format.shards import read_manifest, read_vocabulary
from data_prep.jobs import show, stats_plots
from data_prep.jobs.stats import table
from pipeline.data.collate import Collator
from pipeline.data.describe import LABEL_NAMES, LEGEND, describe_row
from pipeline.data.mask_statistics import count_masks
from pipeline.data.mixture import open_mixture
from pipeline.pretraining.masking_flags import add_masking_flags, resolve_masking

PLOT = "ngrams.png"


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.show", description="Prints rows as training reads them.")
    show.add_arguments(p)
    p.add_argument("--epoch", type=int, default=0, metavar="N", help="epoch whose masks and swaps are drawn (0)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the run (0)")
    p.add_argument("--objective", choices=tuple(LABEL_NAMES), default="sop", help="sentence loss (sop)")
    add_masking_flags(p)
    p.add_argument("--masks", type=int, metavar="N", help="print statistics of the masks of N rows instead of rows")
    p.add_argument("--out", type=Path, metavar="DIR", help="with --masks: directory of the plot (default: DIR/stats)")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints rows or statistics. UserError: there is no such row, epoch, seed or directory."""
    args = parser().parse_all(argv)
    for name in ("epoch", "seed"):
        if not 0 <= getattr(args, name) < 2**63:
            raise UserError(f"--{name} is {getattr(args, name)}; give one from 0 to 2**63 - 1")
    if args.masks is not None and args.masks < 1:
        raise UserError(f"--masks is {args.masks}; give the number of rows to count, 1 or more")
    masking = resolve_masking(args)
    vocabulary = read_vocabulary(args.directory, read_manifest(args.directory))
    mixture = open_mixture([args.directory], [1], vocabulary.continues_word, args.objective, args.seed, masking)
    (collator,) = mixture.collators
    args.n = args.n if args.masks is None else args.masks
    rows = show.rows_wanted(args, len(collator.shards))
    if args.masks is not None:
        _print_statistics(args, collator, rows)
        return
    print(textwrap.fill(LEGEND, show.WIDTH) + "\n")
    for index in rows:
        print("\n".join(describe_row(collator, index, args.epoch, vocabulary)))


def _print_statistics(args: argparse.Namespace, collator: Collator, rows: Sequence[int]) -> None:
    """Prints the statistics of the masks of `rows` and plots the lengths of their n-grams."""
    out = args.out or args.directory / "stats"
    owned.check_addable(out, [PLOT])
    counted = count_masks(collator, args.epoch, rows)
    print(table(f"{args.directory}: masks of epoch {args.epoch}, seed {args.seed}", counted.table))
    counts = {"drawn": counted.drawn, "realised": counted.realised}
    with owned.adding_files(out, "pipeline.show") as place:
        stats_plots.grouped_bars(
            place / PLOT, "Lengths of the predicted n-grams", counts, "words of an n-gram", "n-grams"
        )
    print(f"wrote {out / PLOT}")


if __name__ == "__main__":
    sys.exit(main())
