"""Reads what is to be predicted, and writes it with its predictions: tables in files, or JSON Lines through a pipe."""

import csv
import dataclasses
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError, one_line
from common.files import atomic, places
from pipeline.tasks.files.rows import read_examples
from pipeline.tasks.files.tables import Row, Table, parse_json_lines, read_table
from pipeline.tasks.task import Columns, Examples, Task

PIPE = "-"
"""In the place of a file: standard input or output, as JSON Lines."""
Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Inputs:
    """What is to be predicted.

    Attributes:
        rows: what is written before the prediction of each example.
        columns: of the rows.
        examples: of the task, as many as rows.
    """

    rows: Sequence[Row]
    columns: Sequence[str]
    examples: Examples


def columns_for(task: Task, text: str | None, second_text: str | None, choices: Sequence[str]) -> Columns:
    """The columns to read: those of the run's training, and in their place those that the command line names.

    Raises UserError for a column that the task does not read.
    """
    columns = task.input_columns
    if columns is None:
        raise UserError(f"task {task.name} has no known columns; add `columns` to it")
    if second_text is not None and columns.second_text is None:
        raise UserError(f"--second-text-column: the run was trained on one text, column {columns.text!r}; drop it")
    if choices and not columns.choices:
        raise UserError("--choice-columns: the run was not trained on questions with choices; drop it")
    if choices and len(choices) not in (1, len(task.labels)):
        raise UserError(f"--choice-columns names {len(choices)} columns, and the run has {len(task.labels)} choices")
    return dataclasses.replace(
        columns,
        text=text or columns.text,
        second_text=second_text or columns.second_text,
        choices=tuple(choices) or columns.choices,
    )


def read(task: Task, columns: Columns, source: str) -> Inputs:
    """The rows of a table in the file `source`, or the examples of an official file of the task.

    Raises UserError for content that is none of the two; it names file and line.
    """
    path = Path(source)
    if source == PIPE or task.files is None:
        table = read_rows(source)
    elif task.files.is_official(path):
        examples = task.files.read(task, "test", [path])
        return Inputs([{"id": example.id} for example in examples], ("id",), examples)
    else:
        table = task.files.read_table(path)
    return Inputs(table.rows, table.columns, read_examples(table, task.kind, columns, task.labels, "ignored"))


def read_rows(source: str) -> Table:
    """The rows of a table in a file, or of JSON Lines in standard input. Raises UserError for broken content."""
    if source != PIPE:
        return read_table(Path(source))
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text (byte {error.start:,}); convert it") from None
    table = parse_json_lines(text, Path("standard input"))
    if not table.rows:
        raise UserError("standard input holds no row; pipe JSON Lines into it")
    return table


def check_output(out: str) -> None:
    """Raises UserError if `out` cannot be written."""
    if out == PIPE:
        return
    path = Path(out)
    if path.suffix.lower() not in WRITERS:
        raise UserError(f"--out {out} has none of the endings {', '.join(WRITERS)}; choose one, or - for a pipe")
    if os.path.lexists(path):
        raise UserError(f"--out {out} exists already; move it away, or choose another name")
    if not path.parent.is_dir():
        raise UserError(f"--out {out}: {path.parent} is not a directory; make it first")
    places.check_directory(path.parent)


def write(out: str, rows: Rows) -> None:
    """Writes the rows in the format of the ending of `out`. Raises UserError if the format cannot hold them."""
    if out == PIPE:
        sys.stdout.buffer.write(_json_lines(rows))  # UTF-8 whatever the terminal's encoding is
        sys.stdout.buffer.flush()
        return
    content = WRITERS[Path(out).suffix.lower()](rows)
    with atomic.replacing(Path(out)) as temporary:
        temporary.write_bytes(content)


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
        raise UserError(
            f"the rows fit no Parquet file ({one_line(error)}); choose an --out that ends in .jsonl"
        ) from None
    return buffer.getvalue()


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": functools.partial(_separated, separator=","),
    ".tsv": functools.partial(_separated, separator="\t"),
    ".parquet": _parquet,
}
"""By the ending of a file's name."""
