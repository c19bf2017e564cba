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
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from common.command_line import Parser, entry_point, positive
from common.errors import UserError, one_line
from common.files import atomic, locks, places
from common.progress_bar import Progress
from common.text import printable, quantity
from data_prep.corpus.documents import spelled
from data_prep.text.vocabulary import MASK
from pipeline.settings import declare
from pipeline.settings.finetune_flags import ColumnFlags
from pipeline.tasks.files.rows import Columns, ExampleRow, check_columns, rows_of
from pipeline.tasks.files.tables import Row, Table, parse_json_lines, parse_separated, read_table
from pipeline.tasks.task import Task
from pipeline.training.metrics_file import finite

if TYPE_CHECKING:
    from pipeline.finetuning.predictor import Predictor

PIPE = "-"  # in the place of a file: standard input, or JSON Lines on standard output
MAX_FAULTS = 10  # the most rows that are named on stderr because they cannot be read
BATCHES_IN_CHUNK = 16

Rows = Sequence[dict[str, Any]]
Answering = Callable[[list[Any]], Sequence[dict[str, Any]]]
T = TypeVar("T")


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.predict", description=__doc__.splitlines()[0])
    source = "the --output of a run, an export, or a model of the hub"
    p.add_argument("--run", required=True, type=Path, metavar="RUN", help=source)
    files = ".csv, .tsv, .jsonl, .json, .parquet or .conll; - for a pipe"
    p.add_argument("--input", metavar="FILE", help=files)
    p.add_argument("--out", metavar="FILE", help="new file: .jsonl, .csv, .tsv or .parquet; - for JSON Lines")
    declare.add_flags(p, ColumnFlags)
    p.add_argument("--batch-size", type=positive, metavar="N", help="examples of a batch (default: 32)")
    p.add_argument("--embed", action="store_true", help="write each text's embedding (default: mean of its tokens)")
    p.add_argument("--mask", nargs="+", metavar="TEXT", help="texts with [MASK], for a pre-training run")
    p.add_argument("--top-k", type=positive, metavar="K", help="pieces for each mask (default: 5)")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line. UserError: a mistake; then --out is not written."""
    args = parser().parse_all(argv)
    task_columns = args.second_text_column, *args.choice_columns
    others = (args.input, args.text_column, args.batch_size)
    if args.mask and (args.embed or any(given is not None for given in others)):
        raise UserError("--mask goes without --embed, --input, --text-column and --batch-size; drop it, or the others")
    if args.top_k is not None and not args.mask:
        raise UserError("--top-k is for --mask; drop it")
    if (args.embed or args.mask) and any(task_columns):
        raise UserError("--second-text-column and --choice-columns are for tasks; drop them")
    if not args.mask and None in (args.input, args.out):
        raise UserError("--input and --out are needed, or --mask; name files, or - for a pipe")
    args.batch_size, args.top_k = args.batch_size or 32, args.top_k or 5
    answer = fill_masks if args.mask else embed_texts if args.embed else predictions
    if args.out in (None, PIPE):
        for rows in answer(args):
            if args.out == PIPE:
                write(PIPE, rows)
        return
    out = Path(args.out)
    check_output(out)
    with locks.holding(locks.beside(out), out):
        check_output(out)  # again: another command may have made it
        rows = [row for some in answer(args) for row in some]
        if os.path.lexists(out):  # another program made it meanwhile
            kept = out.with_stem(f"{out.stem}-{secrets.token_hex(4)}")
            write(str(kept), rows)
            raise UserError(f"--out {out} has appeared meanwhile; it stays, and the rows are in {kept}")
        write(args.out, rows)
        print(f"wrote {out}: {len(rows):,} rows")


def answered(
    predictor: "Predictor", batch_size: int, rows: Sequence[Row], examples: Sequence[Any], answer: Answering
) -> Iterator[Rows]:
    """The rows with the columns that `answer` gives for their examples, some batches at a time.

    The row of an example of None stays as it is. In the end it says how many were too long.
    """
    size = BATCHES_IN_CHUNK * batch_size
    with Progress("predict", len(examples), "rows", quiet_seconds=5.0) as progress:
        for start in range(0, len(examples), size):
            chunk = examples[start : start + size]
            known = [example for example in chunk if example is not None]
            answers = iter(answer(known) if known else [])
            of_rows = [{} if example is None else next(answers) for example in chunk]
            yield [{**row, **columns} for row, columns in zip(rows[start : start + size], of_rows, strict=True)]
            progress.update(len(chunk))
    if cut := predictor.cut[0]:
        print(f"note: {quantity(cut, 'row')} cut to the length that the model reads", file=sys.stderr)


def _open(run: Path) -> "Predictor":
    from pipeline.finetuning.predictor import open_predictor  # torch takes seconds to import

    return open_predictor(run)


def predictions(args: argparse.Namespace) -> Iterator[Rows]:
    """The rows of --input with their predictions."""
    predictor = _open(args.run)
    task = predictor.require_task()
    columns = columns_for(
        task, args.text_column, args.second_text_column, args.choice_columns, may_pair=predictor.may_pair
    )
    table = read_rows(args.input, columns.text)
    check_columns(table, columns, labelled=False)
    _refuse_columns(table.rows, task.kind.record_names)
    examples = read_each(table, columns, lambda row: task.kind.read_row(row, task.labels))

    def answer(some: list[Any]) -> list[dict[str, Any]]:
        by_id = predictor.answer(some, args.batch_size)
        return [by_id[example.id] for example in some]

    return answered(predictor, args.batch_size, table.rows, examples, answer)


def embed_texts(args: argparse.Namespace) -> Iterator[Rows]:
    """The rows of --input with the embedding of their text."""
    table, columns = read_rows(args.input), Columns(args.text_column or "text")
    check_columns(table, columns, labelled=False)
    _refuse_columns(table.rows, ("embedding",))
    texts, predictor = read_each(table, columns, lambda row: row.text(columns.text)), _open(args.run)

    def answer(some: list[Any]) -> list[dict[str, Any]]:
        return [{"embedding": vector} for vector in predictor.embed(some, args.batch_size).tolist()]

    return answered(predictor, args.batch_size, table.rows, texts, answer)


def fill_masks(args: argparse.Namespace) -> Iterator[Rows]:
    """Each --mask with the most likely pieces in its masks. Prints them if there is no --out."""
    predictor = _open(args.run)
    texts = list(map(spelled, args.mask))  # as the shell wrote them, also where Python's encoding is ASCII
    rows, shown = [], []
    for text, fills in zip(texts, predictor.fill_mask(texts, args.top_k)):
        shown.append(text)
        masks = []
        for number, of_mask in enumerate(fills, start=1):
            shown += [f"  {MASK} {number}:"] if len(fills) > 1 else []
            shown += [f"  {100 * one.probability:5.1f} %  {one.text}" for one in of_mask]
            masks.append([{"piece": one.piece, "probability": one.probability} for one in of_mask])
        rows.append({"text": text, "masks": masks})
    if args.out is None:
        print(*map(printable, shown), sep="\n")
    yield rows


def _refuse_columns(rows: Iterable[Row], names: Sequence[str]) -> None:
    if taken := next((name for row in rows for name in names if name in row), None):
        raise UserError(f"the input has a column {taken!r}, as the output will; rename it")


def columns_for(
    task: Task, text: str | None, second_text: str | None, choices: Sequence[str], *, may_pair: bool
) -> Columns:
    """The columns to read: those of the run's training, and in their place those that the command line names.

    Raises UserError for a column that the task does not read.
    """
    columns = task.input_columns
    assert columns is not None
    lacking = "the run was trained without such a column; drop it"
    if second_text and not (columns.second_text or may_pair):
        raise UserError(f"--second-text-column: {lacking}")
    if choices and not columns.choices:
        raise UserError(f"--choice-columns: {lacking}")
    given: dict[str, Any] = {"text": text, "second_text": second_text, "choices": tuple(choices)}
    return dataclasses.replace(columns, **{name: value for name, value in given.items() if value})


def read_each(table: Table, columns: Columns, read_row: Callable[[ExampleRow], T]) -> list[T | None]:
    """What `read_row` makes of each row; None, and a line on stderr, for one that it refuses."""
    made: list[T | None] = []
    faults: list[UserError] = []
    for row in rows_of(table, columns, "ignored"):
        try:
            made.append(read_row(row))
        except UserError as error:
            made.append(None)
            faults.append(error)
    if faults and len(faults) == len(made):
        raise faults[0]
    for fault in faults[:MAX_FAULTS]:
        print(f"no prediction for {fault}", file=sys.stderr)
    if len(faults) > MAX_FAULTS:
        print(f"no prediction for {len(faults) - MAX_FAULTS:,} more rows", file=sys.stderr)
    return made


def read_rows(source: str, column: str | None = None) -> Table:
    """The rows of a file, or of JSON Lines, CSV or TSV in standard input. column: of the texts, see `read_table`."""
    if source != PIPE:
        return read_table(Path(source), (column,))
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text (byte {error.start:,}); convert it") from None
    parse = parse_json_lines if text.lstrip().startswith(("{", "[")) else parse_separated
    table = parse(text, Path("standard input"))
    if not table.rows:
        raise UserError("standard input holds no row; pipe JSON Lines, or CSV with a header, into it")
    return table


def check_output(out: Path) -> None:
    """Raises UserError if `out` cannot be written."""
    if out.suffix.lower() not in WRITERS:
        raise UserError(f"--out {out} has none of the endings {', '.join(WRITERS)}; choose one, or - for a pipe")
    places.check_new_file(out)


def write(out: str, rows: Rows) -> None:
    """Writes the rows in the format of the ending of `out`. Raises UserError if the format cannot hold them."""
    if out == PIPE:
        sys.stdout.buffer.write(_json_lines(rows))  # UTF-8 whatever the terminal's encoding is
        sys.stdout.buffer.flush()
    else:
        atomic.write_bytes(Path(out), WRITERS[Path(out).suffix.lower()](rows))


def _json(value: Any) -> str:
    return json.dumps(finite(value), ensure_ascii=False, default=str, allow_nan=False)


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
        fault = f"the rows fit no Parquet file ({one_line(error)})"
        raise UserError(f"{fault}; choose an --out that ends in .jsonl") from None
    return buffer.getvalue()


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    **dict.fromkeys((".jsonl", ".ndjson"), _json_lines),
    ".csv": functools.partial(_separated, separator=","),
    ".tsv": functools.partial(_separated, separator="\t"),
    ".parquet": _parquet,
}
"""By the ending of a file's name."""


if __name__ == "__main__":
    sys.exit(main())
