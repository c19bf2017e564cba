"""Writes models of a run as directories that `transformers` opens, each with a model card.

    python -m pipeline.export --run runs/base --out albert-base
    python -m pipeline.export --run runs/base --out albert-base --license apache-2.0 --push me/albert-base
    python -m pipeline.export --run runs/base --out albert-steps --all

Exports the newest complete checkpoint of a pre-training run, or the best one of a fine-tuning run. --step, --best and
--all choose others. One process is enough, however many ranks trained.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import entry_point
from pipeline.checkpoint import run_directory
from pipeline.finetuning.finetuned_model import finetuned
from pipeline.sharing import export_command
from pipeline.sharing.export import Source, pretrained


@entry_point
def main(argv: Sequence[str]) -> None:
    """Exports as the command line asks. UserError: a mistake."""
    export_command.run(export_command.parser(__doc__.splitlines()[0]).parse_all(argv), _open)


def _open(run: Path) -> Source:
    return finetuned(run) if "task" in run_directory.read_settings(run) else pretrained(run)


if __name__ == "__main__":
    sys.exit(main())
