"""Compares runs on one HTML page: figures, settings that differ, speed, cost, and curves.

    python -m pipeline.report --runs runs --out report.html [--price-per-gpu-hour 2.5]

--runs names directories that are searched for runs of pipeline.pretrain and pipeline.finetune, finished or not. The
page holds everything that it shows, so it can be sent to others and opened without a network.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, entry_point, price
from common.errors import UserError
from common.files import owned, storage
from common.text import quantity


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.report", description=__doc__.splitlines()[0])
    p.add_argument(
        "--runs", nargs="+", required=True, type=storage.records, metavar="DIR", help="directories to search for runs"
    )
    p.add_argument("--out", required=True, type=Path, metavar="FILE", help="the page to write, such as report.html")
    p.add_argument(
        "--price-per-gpu-hour", type=price, metavar="P", help="price of a GPU for an hour; adds the cost of each run"
    )
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    from pipeline.analysis import compared_runs, finished_runs  # torch takes seconds to import
    from pipeline.analysis.html_report import page

    if args.out.is_dir():
        raise UserError(f"--out {args.out} is a directory; name a file in it, such as {args.out / 'report.html'}")
    owned.check_addable(args.out.parent, [args.out.name])
    runs = compared_runs.find(args.runs)
    text = page(runs, finished_runs.find_runs(args.runs), args.price_per_gpu_hour)
    with owned.adding_files(args.out.parent, "pipeline.report") as place:
        (place / args.out.name).write_text(text, encoding="utf-8")
    print(f"{args.out} compares {quantity(len(runs), 'run')}: {', '.join(run.name for run in runs)}")


if __name__ == "__main__":
    sys.exit(main())
