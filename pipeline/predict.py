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

import argparse
import csv
import dataclasses
import functools
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, entry_point, positive
from common.errors import UserError, one_line
from common.files import atomic, places
from common.progress_bar import Progress
from data_prep.corpus.documents import spelled
from data_prep.text.vocabulary import MASK
from pipeline.settings import declare
from pipeline.settings.finetune_flags import ColumnFlags
from pipeline.tasks.files.rows import Columns, check_columns, rows_of
from pipeline.tasks.files.tables import Table, parse_json_lines, parse_separated, read_table
from pipeline.tasks.task import Task

PIPE = "-"
"""In the place of a file: standard input, or JSON Lines on standard output."""
BATCHES = 16
"""After which the bar moves, and a pipe gets its rows."""

Rows = Sequence[dict[str, Any]]


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.predict", description=__doc__.splitlines()[0])
    p.add_argument(
        "--run",
        required=True,
        type=Path,
        metavar="RUN",
        help="the --output of a run, an export, or a model of the hub",
    )
    p.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help=".csv, .tsv, .jsonl, .json, .parquet or .conll; - for a pipe",
    )
    p.add_argument("--out", metavar="FILE", help="new file: .jsonl, .csv, .tsv or .parquet; - for JSON Lines")
    declare.add_flags(p, ColumnFlags)
    p.add_argument("--batch-size", type=positive, default=32, metavar="N", help="examples of a batch (default: 32)")
    p.add_argument("--embed", action="store_true", help="write the embedding of each text, mean-pooled, of length 1")
    p.add_argument("--mask", nargs="+", metavar="TEXT", help="texts with [MASK], for a pre-training run")
    p.add_argument("--top-k", type=positive, default=5, metavar="K", help="pieces for each mask (default: 5)")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line. UserError: a mistake; nothing is written then."""
    args = parser().parse_all(argv)
    if args.mask and (args.embed or args.input is not None):
        raise UserError("--mask, --embed and --input: --mask goes alone; drop it, or the others")
    if not args.mask and None in (args.input, args.out):
        raise UserError("--input and --out are needed, or --mask; name files, or - for a pipe")
    if args.out not in (None, PIPE):
        if Path(args.out).suffix.lower() not in WRITERS:
            raise UserError(f"--out {args.out} has none of the endings {', '.join(WRITERS)}; choose one, or -")
        places.check_new_file(Path(args.out))
    chunks: Iterable[Rows] = [fill_masks(args)] if args.mask else predict(args)
    if args.out == PIPE:
        for some in chunks:
            sys.stdout.buffer.write(_json_lines(some))  # UTF-8 whatever the terminal's encoding is
            sys.stdout.buffer.flush()
    elif args.out is not None:
        rows = [row for some in chunks for row in some]
        write(Path(args.out), rows)
        print(f"wrote {args.out}: {len(rows):,} rows")


def predict(args: argparse.Namespace) -> Iterator[Rows]:
    """Yields the rows of --input with their predictions or embeddings, some batches at a time."""
    from pipeline.finetuning.predictor import open_predictor  # torch takes seconds to import

    predictor = open_predictor(args.run)
    task = None if args.embed else predictor.require_task()
    columns = Columns(args.text_column or "text") if task is None else columns_for(task, args)
    table = read_rows(args.input, columns.text)
    check_columns(table, columns, labelled=False)
    added = ("embedding",) if task is None else task.kind.record_names
    if taken := next((name for row in table.rows for name in added if name in row), None):
        raise UserError(f"the input has a column {taken!r}, as the output will; rename it")
    examples: Sequence[Any]
    if task is None:
        examples = [row.text(columns.text) for row in rows_of(table, columns, "ignored")]
    else:
        examples = task.kind.read_examples(table, columns, task.labels, "ignored")
    size = BATCHES * args.batch_size
    with Progress("predict", len(examples), "rows", quiet_seconds=5.0) as progress:
        for start in range(0, len(examples), size):
            some = examples[start : start + size]
            if task is None:
                answers = [{"embedding": vector} for vector in predictor.embed(some, args.batch_size).tolist()]
            else:
                answers = list(predictor.answer(some, args.batch_size).values())
            yield [{**row, **answer} for row, answer in zip(table.rows[start:], answers)]
            progress.update(len(some))


def fill_masks(args: argparse.Namespace) -> Rows:
    """The most likely pieces in the masks of each --mask. Prints them if there is no --out."""
    from pipeline.finetuning.predictor import open_predictor

    predictor = open_predictor(args.run)
    texts = list(map(spelled, args.mask))  # as the shell wrote them, also where Python's encoding is ASCII
    rows = []
    for text, fills in zip(texts, predictor.fill_mask(texts, args.top_k)):
        masks = [[{"piece": fill.piece, "probability": fill.probability} for fill in of_mask] for of_mask in fills]
        rows.append({"text": text, "masks": masks})
        if args.out is None:
            print(text)
            for number, of_mask in enumerate(fills, start=1):
                if len(fills) > 1:
                    print(f"  {MASK} {number}:")
                for fill in of_mask:
                    print(f"  {100 * fill.probability:5.1f} %  {fill.text}")
    return rows


def columns_for(task: Task, flags: ColumnFlags | argparse.Namespace) -> Columns:
    """The columns to read: those of the run's training, and in their place those that the command line names.

    Raises UserError for a column that the task does not read.
    """
    columns = task.input_columns
    assert columns is not None
    for flag, given, known in (
        ("--second-text-column", flags.second_text_column, columns.second_text),
        ("--choice-columns", flags.choice_columns, columns.choices),
    ):
        if given and not known:
            raise UserError(f"{flag}: the run was trained without such a column; drop it")
    return dataclasses.replace(
        columns,
        text=flags.text_column or columns.text,
        second_text=flags.second_text_column or columns.second_text,
        choices=tuple(flags.choice_columns) or columns.choices,
    )


def read_rows(source: Path, column: str) -> Table:
    """The rows of a table in a file, or of JSON Lines, CSV or TSV in standard input. UserError: broken content.

    `column` is one that will be read, see `read_table`.
    """
    if str(source) != PIPE:
        return read_table(source, (column,))
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text (byte {error.start:,}); convert it") from None
    parse = parse_json_lines if text.lstrip().startswith(("{", "[")) else parse_separated
    table = parse(text, Path("standard input"))
    if not table.rows:
        raise UserError("standard input holds no row; pipe JSON Lines, or CSV with a header, into it")
    return table


def write(out: Path, rows: Rows) -> None:
    """Writes the rows in the format of the ending of `out`. Raises UserError if the format cannot hold them."""
    atomic.write_bytes(out, WRITERS[out.suffix.lower()](rows))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _json_lines(rows: Rows) -> bytes:
    return "".join(_json(row) + "\n" for row in rows).encode()


def _separated(rows: Rows, separator: str) -> bytes:
    """CSV. Lists and objects become JSON, a missing value an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _names(rows), delimiter=separator, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _json(cell) if isinstance(cell, list | dict) else cell for name, cell in row.items()})
    return text.getvalue().encode()


def _parquet(rows: Rows) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, buffer = _names(rows), io.BytesIO()
    try:
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), buffer)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise UserError(f"the rows fit no Parquet file ({one_line(error)}); choose an --out of .jsonl") from None
    return buffer.getvalue()


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    ".jsonl": _json_lines,
    ".csv": functools.partial(_separated, separator=","),
    ".tsv": functools.partial(_separated, separator="\t"),
    ".parquet": _parquet,
}
"""By the ending of a file's name."""


if __name__ == "__main__":
    sys.exit(main())
