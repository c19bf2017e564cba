"""Reads what is to be predicted: a file or standard input, as examples of a run's task."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from pipeline.tasks.files.rows import read_examples
from pipeline.tasks.files.tables import MAX_FILE_BYTES, Row, Table, parse_json_lines, read_table
from pipeline.tasks.task import Columns, Examples, Task

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
    if source == PIPE:
        table = _standard_input()
    elif task.files is None:
        table = read_table(path)
    elif task.files.is_official(path):
        examples = task.files.read(task, "test", [path])
        return Inputs([{"id": example.id} for example in examples], ("id",), examples)
    else:
        table = task.files.read_table(path)
    return Inputs(table.rows, table.columns, read_examples(table, task.kind, columns, task.labels, "ignored"))


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
