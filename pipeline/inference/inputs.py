"""Reads what is to be predicted: a file or standard input, as examples of a run's task."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from pipeline.tasks.examples import MAX_FILE_BYTES, Examples, load_json, read_text
from pipeline.tasks.files.glue import GlueFiles
from pipeline.tasks.files.own import read_examples
from pipeline.tasks.files.tables import Row, Table, parse_json_lines, read_table
from pipeline.tasks.task import Columns, Task

PIPE = "-"
"""In the place of a file: standard input or output, as JSON Lines."""


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


def columns_for(task: Task, text: str | None, second_text: str | None, choices: Sequence[str] | None) -> Columns:
    """The columns to read: those of the run's training, and in their place those that the command line names.

    Raises UserError for a column that the task does not read.
    """
    columns = task.columns or (None if task.files is None else task.files.table_columns)
    if columns is None:
        raise UserError(f"task {task.name} has no known columns; add `columns` to it")
    if second_text is not None and columns.second_text is None:
        raise UserError(f"--second-text-column: the run was trained on one text, column {columns.text!r}; drop it")
    if choices is not None and not columns.choices:
        raise UserError("--choice-columns: the run was not trained on questions with choices; drop it")
    if choices is not None and len(choices) not in (1, len(task.labels)):
        raise UserError(f"--choice-columns names {len(choices)} columns, and the run has {len(task.labels)} choices")
    return dataclasses.replace(
        columns,
        text=text or columns.text,
        second_text=second_text or columns.second_text,
        choices=columns.choices if choices is None else tuple(choices),
    )


def read(task: Task, columns: Columns, source: str) -> Inputs:
    """The rows of a table in the file `source`, or the examples of an official file of the task.

    Raises UserError for content that is none of the two; it names file and line.
    """
    path = Path(source)
    if source == PIPE:
        table = _standard_input()
    elif (task.is_extractive and path.suffix.lower() == ".json" and _is_squad(path)) or (
        task.kind == "choice" and path.suffix.lower() == ".txt"
    ):
        return _official(task, path)
    elif isinstance(task.files, GlueFiles):
        table = _with_header(read_table(path, quoted=False), task.files, columns)
    else:
        table = read_table(path)
    if task.kind == "choice" and "questions" in table.columns and columns.second_text != "questions":
        return _official(task, path)
    examples = read_examples(table, task.kind, columns, task.labels, "ignored")
    return Inputs(table.rows, table.columns, examples)


def _with_header(table: Table, files: GlueFiles, columns: Columns) -> Table:
    """The rows of an official GLUE file, of which some have no header: then the first row was taken for it."""
    names = files.columns
    if columns.text in table.columns or names is None or len(names) != len(table.columns):
        return table
    cells = [table.columns, *(tuple(row.values()) for row in table.rows)]
    return dataclasses.replace(
        table, columns=names, rows=[dict(zip(names, row)) for row in cells], numbers=[1, *table.numbers]
    )


def _standard_input() -> Table:
    content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UserError(f"standard input has more than {MAX_FILE_BYTES:,} bytes; divide it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"standard input, line {line}: not UTF-8 text; convert it") from None
    table = parse_json_lines(text, Path("standard input"))
    if not table.rows:
        raise UserError("standard input holds no row; pipe JSON Lines into it")
    return table


def _is_squad(path: Path) -> bool:
    """Whether a JSON file is an object over several lines or with "data", as SQuAD's are, and not a line for each."""
    text = read_text(path)
    first = text.lstrip()[:1]
    lines = [line for line in text.split("\n") if line.strip()]
    return first == "{" and (len(lines) != 1 or "data" in load_json(text, path))


def _official(task: Task, path: Path) -> Inputs:
    assert task.files is not None
    examples: Any = task.files.read(task, "test", [path])
    return Inputs([{"id": example.id} for example in examples], ("id",), examples)
