"""The work of `pipeline.predict`: checks the command, predicts, and writes tables, or JSON Lines through a pipe.

The answers are made in chunks, with a bar. For a file they are written as they come, so that the same command goes on
after an interruption.
"""

import argparse
import contextlib
import csv
import dataclasses
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import xxhash

from common.errors import UserError, one_line
from common.files import atomic, locks, places
from common.files.json_files import read_bytes
from common.progress_bar import Progress
from data_prep.corpus.documents import spelled
from data_prep.text.vocabulary import MASK
from pipeline.checkpoint.pooling import read_pooling
from pipeline.finetuning.predictor import Predictor, open_predictor
from pipeline.tasks.files.rows import Columns, ExampleRow, check_columns, rows_of
from pipeline.tasks.files.tables import Row, Table, parse_json_lines, parse_separated, read_table
from pipeline.tasks.task import Task
from pipeline.training.metrics_file import finite

PIPE = "-"
"""In the place of a file: standard input, or JSON Lines on standard output."""
MAX_FAULTS = 10
"""Rows that are named on stderr because they cannot be read."""
BATCHES = 16
"""Of a chunk, which is lost if the command is interrupted."""

Rows = Sequence[dict[str, Any]]
Answer = dict[str, Any]
Answering = Callable[[list[Any]], Sequence[Answer]]
PARTIAL_MARK = "albert-pretraining answers "
"""Begins the first line of a `partial_file`, which the identity ends. Each further line is the JSON of a chunk."""
MAX_PARTIAL_BYTES = 64 << 30
T = TypeVar("T")


def run(args: argparse.Namespace) -> None:
    """Runs a parsed command line. Raises UserError for a mistake; nothing is written then."""
    columns = args.second_text_column, *args.choice_columns
    if args.mask and (args.embed or args.input is not None or args.text_column or any(columns)):
        raise UserError("--mask goes without --embed, --input and columns; drop it, or the others")
    if args.embed and any(columns):
        raise UserError("--embed reads one column, --text-column; drop the other ones")
    if not args.mask and None in (args.input, args.out):
        raise UserError("--input and --out are needed, or --mask; name files, or - for a pipe")
    if args.out is not None:
        check_output(args.out)
    chunks = fill_masks(args) if args.mask else embed_texts(args) if args.embed else predict(args)
    if args.out == PIPE:
        for rows in chunks:
            write(PIPE, rows)
        return
    rows = [row for some in chunks for row in some]
    if args.out is not None:
        write(args.out, rows)
        if not args.mask:
            partial_file(Path(args.out)).unlink()
        print(f"wrote {args.out}: {len(rows):,} rows")


def answered(
    args: argparse.Namespace,
    predictor: Predictor,
    rows: Sequence[Row],
    examples: Sequence[Any],
    answer: Answering,
    *options: object,
) -> Iterator[Rows]:
    """The rows with the columns that `answer` gives for their examples, some batches at a time.

    `options` are what else decides these columns, see `identity_of`.
    """
    out, left = None if args.out == PIPE else Path(args.out), iter(rows)
    identity = identity_of(predictor.model, predictor.vocabulary.pieces, args.batch_size, *options, *rows)
    for some in answers(examples, answer, BATCHES * args.batch_size, out, identity):
        yield [{**row, **found} for found, row in zip(some, left)]


def partial_file(out: Path) -> Path:
    """The file beside `out` that holds the answers so far."""
    return out.with_name(f".{out.name}.partial")


def identity_of(model: torch.nn.Module, *options: object) -> str:
    """A digest of the weights of a model and of anything else that decides the answers, by its `repr`."""
    state = xxhash.xxh3_128()
    for option in options:
        state.update(repr(option).encode(errors="surrogatepass"))
    for name, tensor in model.state_dict().items():
        state.update(name.encode())
        state.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return str(state.hexdigest())


def answers(
    examples: Sequence[Any], answer: Answering, size: int, out: Path | None, identity: str
) -> Iterator[list[Answer]]:
    """Yields the answers to examples, `size` at a time. An example of None has {}.

    With `out`, each chunk is added to its `partial_file` first, from which a later start with the same identity reads.

    Raises UserError if another process writes `out`, or the partial file is another file.
    """
    with contextlib.ExitStack() as stack:
        found: list[list[Answer]] = []
        if out is not None:
            stack.enter_context(locks.holding(locks.beside(out), out))
            partial = partial_file(out)
            found = _read_partial(partial, PARTIAL_MARK + identity)
            atomic.write_text(partial, "\n".join([PARTIAL_MARK + identity, *map(json.dumps, found), ""]))
            file = stack.enter_context(partial.open("a", encoding="utf-8"))
        progress = stack.enter_context(Progress("predict", len(examples), "rows", quiet_seconds=5.0))
        if done := sum(map(len, found)):
            progress.resume(done)
            progress.say(f"predict: {done:,} of {len(examples):,} rows are in {partial} already")
        yield from found
        for start in range(done, len(examples), size):
            chunk = examples[start : start + size]
            given = iter(answer([example for example in chunk if example is not None]))
            made = [{} if example is None else next(given) for example in chunk]
            if out is not None:
                file.write(json.dumps(made) + "\n")
                file.flush()
            progress.update(len(made))
            yield made


def _read_partial(partial: Path, first: str) -> list[list[Answer]]:
    """The chunks of an earlier start, if its first line is `first`; of a later one nothing that a kill cut short."""
    if not os.path.lexists(partial):
        return []
    lines = read_bytes(partial, "move it away", MAX_PARTIAL_BYTES).decode(errors="replace").split("\n")[:-1]
    if not lines or not lines[0].startswith(PARTIAL_MARK):
        raise UserError(f"{partial} is no file of this command; move it away")
    if lines[0] != first:
        print(f"{partial} is of another model, input or options; all rows are predicted anew", flush=True)
        return []
    found: list[list[Answer]] = []
    with contextlib.suppress(ValueError):
        found.extend(json.loads(line) for line in lines[1:])
    return found


def predict(args: argparse.Namespace) -> Iterator[Rows]:
    """The rows of --input with their predictions."""
    predictor = open_predictor(args.run)
    task = predictor.require_task()
    names = args.text_column, args.second_text_column, args.choice_columns
    columns = columns_for(task, *names, predictor.may_pair)
    table = read_rows(args.input, columns.text)
    check_columns(table, columns, labelled=False)
    _refuse_columns(table.rows, task.kind.record_names)
    examples = read_each(table, columns, lambda row: task.kind.read_row(row, task.labels))

    def answer(some: list[Any]) -> list[dict[str, Any]]:
        by_id = predictor.answer(some, args.batch_size)
        return [by_id[example.id] for example in some]

    options = (task.kind.name, task.labels, predictor.limits, columns)
    return answered(args, predictor, table.rows, examples, answer, *options)


def embed_texts(args: argparse.Namespace) -> Iterator[Rows]:
    """The rows of --input with the embedding of their text."""
    table, columns = read_rows(args.input), Columns(args.text_column or "text")
    check_columns(table, columns, labelled=False)
    _refuse_columns(table.rows, ("embedding",))
    texts, predictor = read_each(table, columns, lambda row: row.text(columns.text)), open_predictor(args.run)

    def answer(some: list[Any]) -> list[dict[str, Any]]:
        return [{"embedding": vector} for vector in predictor.embed(some, args.batch_size).tolist()]

    return answered(args, predictor, table.rows, texts, answer, columns, read_pooling(predictor.place))


def fill_masks(args: argparse.Namespace) -> Iterator[Rows]:
    """Each --mask with the most likely pieces in its masks. Prints them if there is no --out."""
    predictor = open_predictor(args.run)
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
        print(*shown, sep="\n")
    yield rows


def _refuse_columns(rows: Iterable[Row], names: Sequence[str]) -> None:
    if taken := next((name for row in rows for name in names if name in row), None):
        raise UserError(f"the input has a column {taken!r}, as the output will; rename it")


def columns_for(
    task: Task, text: str | None, second_text: str | None, choices: Sequence[str], may_pair: bool = False
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
    """The rows of a file, or of JSON Lines, CSV or TSV in standard input. `column` will be read: see `read_table`."""
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


def check_output(out: str) -> None:
    """Raises UserError if `out` cannot be written."""
    if out == PIPE:
        return
    if Path(out).suffix.lower() not in WRITERS:
        raise UserError(f"--out {out} has none of the endings {', '.join(WRITERS)}; choose one, or - for a pipe")
    places.check_new_file(Path(out))


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
