"""Writes the model of a run as a directory with a model card, in the layout of `transformers` where it has one.

    python -m pipeline.export --run runs/base --out albert-base
    python -m pipeline.export --run runs/base --out albert-base --license apache-2.0 --language en

Exports the newest complete checkpoint of pre-training, or the best one of fine-tuning. --step chooses another.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, entry_point, positive
from common.errors import UserError
from pipeline.settings.finetune_flags import seed_directories


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.export", description=__doc__.splitlines()[0])
    p.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of a run")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory to write")
    p.add_argument("--step", type=positive, metavar="N", help="the checkpoint of this step")
    license_help = "the model's license, as the hub spells it, such as apache-2.0 (default: other, not stated)"
    p.add_argument("--license", default="other", metavar="ID", help=license_help)
    language_help = "languages of the text, such as en (default: what the shards recorded)"
    p.add_argument("--language", nargs="+", default=[], metavar="CODE", help=language_help)
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Exports as the command line asks, and prints what was written. UserError: a mistake."""
    args = parser().parse_all(argv)
    run, out = args.run.resolve(), args.out.resolve()
    if run.is_relative_to(out) or out.is_relative_to(run / "checkpoints"):
        raise UserError(f"--out {args.out} holds the run or is one of its checkpoints; choose another --out")
    seeds = seed_directories(args.run, "settings.json")
    if seeds and not (args.run / "settings.json").exists():
        raise UserError(f"--run {args.run} holds a run of several seeds; name one of them, such as {seeds[0]}")

    from pipeline.sharing.write_export import export_run  # torch takes seconds to import

    form = export_run(args.run, args.out, args.step, args.license, args.language)
    print(f"wrote {args.out} {form}")


if __name__ == "__main__":
    sys.exit(main())
