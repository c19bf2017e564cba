"""Predicts with a trained model: labels, numbers, tags, answers or embeddings for a file, or words in a [MASK].

    python -m pipeline.predict --run runs/reviews --input new.csv --out predicted.csv
    cat new.csv | python -m pipeline.predict --run reviews-export --input - --out - > predicted.jsonl
    python -m pipeline.predict --run runs/base --mask "Paris is the [MASK] of France."
    python -m pipeline.predict --run models/all-MiniLM-L6-v2 --embed --input new.csv --out embeddings.parquet

--run is a run, an export, a model published for `transformers`, or the name of one on the hub (OWNER/NAME). The first
two commands need a model that is fine-tuned on any task, the third one that is pre-trained, the last one any. The
model's own record says which columns to read and what the labels are called. The rows are written with further columns
for the prediction.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, entry_point, positive
from pipeline.settings import declare
from pipeline.settings.finetune_flags import ColumnFlags


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.predict", description=__doc__.splitlines()[0])
    source = "the --output of a run, an export, or a model of the hub"
    p.add_argument("--run", required=True, type=Path, metavar="RUN", help=source)
    files = ".csv, .tsv, .jsonl, .json, .parquet or .conll; - for a pipe"
    p.add_argument("--input", type=Path, metavar="FILE", help=files)
    p.add_argument("--out", metavar="FILE", help="new file: .jsonl, .csv, .tsv or .parquet; - for JSON Lines")
    declare.add_flags(p, ColumnFlags)
    p.add_argument("--batch-size", type=positive, default=32, metavar="N", help="examples of a batch (default: 32)")
    p.add_argument("--embed", action="store_true", help="write the embedding of each text, mean-pooled, of length 1")
    p.add_argument("--mask", nargs="+", metavar="TEXT", help="texts with [MASK], for a pre-training run")
    p.add_argument("--top-k", type=positive, default=5, metavar="K", help="pieces for each mask (default: 5)")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    args.input = None if args.input is None else str(args.input)
    from pipeline.finetuning import predict_command  # torch takes seconds to import

    predict_command.run(args)


if __name__ == "__main__":
    sys.exit(main())
