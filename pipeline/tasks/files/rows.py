"""Turns the rows of a table into examples, by the columns that the user names, and finds the labels in them."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from common.errors import UserError
from pipeline.tasks.files.tables import Table, text_of
from pipeline.tasks.kind import Kind
from pipeline.tasks.task import Columns, Examples

MAX_LABELS = 1000
"""A column with more different values is no label."""
MAX_NAMED = 10
"""Labels that a message names."""

Labelling = Literal["required", "optional", "ignored"]
"""What is done with the column of labels: training and dev rows need one, test rows may have one."""


class ExampleRow:
    """A row of a table. Its methods raise UserError, with file and line, for what is not as it should be.

    Attributes:
        id: the number of the row, from 0.
        columns: of the task.
        label: the value in the column of labels; None if it is missing.
        reads_label: whether labels are read, and the table has some.
        needs_label: whether a missing label is a mistake.
    """

    def __init__(self, table: Table, index: int, columns: Columns, labelling: Labelling = "required") -> None:
        self._table, self._index, self._row = table, index, table.rows[index]
        self.id, self.columns = str(index), columns
        self.reads_label = labelling != "ignored" and columns.label in table.columns
        self.needs_label = labelling == "required"
        self.label = self._row.get(columns.label)

    def mistake(self, text: str) -> UserError:
        """The error that names the place of the row."""
        return UserError(f"{self._table.place(self._index)}: {text}")

    def text(self, column: str, may_be_empty: bool = False) -> str:
        """The text in a column."""
        value = self._row.get(column)
        if value is None or (isinstance(value, str) and not value.strip() and not may_be_empty):
            raise self.mistake(f"column {column!r} is empty; fill it, or remove the row")
        return text_of(value, f"column {column!r}", lambda: self._table.place(self._index))

    def texts(self, column: str, item: str) -> tuple[str, ...]:
        """The list of texts in a column; `item` says what each of them is."""
        values = self.check_list(column, self._row.get(column))
        return tuple(text_of(value, item, lambda: self._table.place(self._index)) for value in values)

    def check_list(self, column: str, value: Any) -> Sequence[Any]:
        """Returns the value of a column, which must be a list."""
        if not isinstance(value, (list, tuple)):
            raise self.mistake(f"column {column!r} is no list; write JSON Lines or Parquet with lists")
        return value

    def is_text(self, column: str) -> bool:
        """Whether the column has a text instead of a list."""
        return isinstance(self._row.get(column), str)

    def name_of(self, value: Any) -> str | None:
        """The name of one label; None for a missing one. 1 and 1.0 are "1"; true is "true"."""
        if isinstance(value, (list, tuple, dict)):
            raise self.mistake(
                f"column {self.columns.label!r} holds {value!r}, which is no single label; correct it, "
                "or check --task and --label-column"
            )
        return name_of(value)

    def check_missing(self) -> None:
        """Call this if the label is missing."""
        if self.needs_label:
            raise self.mistake(f"column {self.columns.label!r} is empty; fill it, or remove the row")

    def class_of(self, value: Any, labels: Sequence[str]) -> int | None:
        """The number of a class by its name; None for a missing one."""
        name = self.name_of(value)
        if name is None:
            self.check_missing()
            return None
        if name not in labels:
            more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
            raise self.mistake(
                f"the label {name!r} does not occur in training, which has {', '.join(labels[:MAX_NAMED])}{more}; "
                "correct it, or add training examples"
            )
        return labels.index(name)

    def number(self) -> float | None:
        """The label of a regression; None for a missing one."""
        value = self.label
        if value is None or name_of(value) is None:
            self.check_missing()
            return None
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or abs(number) > 1e18:  # fp32 adds up their squares
            raise self.mistake(
                f"column {self.columns.label!r} holds {value!r}, which is no number; correct it, "
                "or use --task classification"
            )
        return number


def name_of(value: Any) -> str | None:
    """See `ExampleRow.name_of`."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def check_columns(table: Table, columns: Columns, labelled: bool) -> None:
    """Raises UserError if the table lacks a column that is read; the line names those that are there."""
    wanted = [(columns.text, "--text-column"), *((name, "--choice-columns") for name in columns.choices)]
    wanted += [(columns.second_text, "--second-text-column")] if columns.second_text is not None else []
    wanted += [(columns.label, "--label-column")] if labelled else []
    for name, flag in wanted:
        if name not in table.columns:
            raise UserError(
                f"{table.source} has no column {name!r}; it has {', '.join(table.columns)}; name one with {flag}"
            )


def find_classes(table: Table, columns: Columns, values_of: Callable[[ExampleRow], Iterable[Any]]) -> tuple[str, ...]:
    """The names of the classes of a task, from its training rows.

    They are those that occur, in the order of their names, or of their numbers if all are whole numbers. A data set
    that names its classes decides their order.

    Args:
        values_of: the labels in a row.
    Raises:
        UserError: there is only one class, or there are more than `MAX_LABELS`.
    """
    given = table.class_names.get(columns.label)
    names = set(given or ())
    for index in range(0 if given else len(table.rows)):
        row = ExampleRow(table, index, columns)
        names.update(name for value in values_of(row) if (name := row.name_of(value)) is not None)
    if len(names) < 2:
        found = f"only {min(names)!r}" if names else "no label"
        raise UserError(f"{table.source}: column {columns.label!r} holds {found}; a task needs two different labels")
    if len(names) > MAX_LABELS:
        raise UserError(
            f"{table.source}: column {columns.label!r} holds {len(names):,} different labels, more than "
            f"{MAX_LABELS:,}; check --label-column"
        )
    are_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return given or tuple(sorted(names, key=lambda name: (int(name) if are_numbers else 0, name)))


def read_examples(
    table: Table, kind: Kind[Any, Any], columns: Columns, labels: Sequence[str], labelling: Labelling = "required"
) -> Examples:
    """The examples of one split; their ids are the numbers of their rows, from 0.

    Args:
        labels: of the task, in the order of the logits.
    Raises:
        UserError: a column is missing, a text is empty or no text, or a label is missing, unknown or no number. It
            names the file and its line.
    """
    check_columns(table, columns, labelling == "required")
    return [kind.read_row(ExampleRow(table, index, columns, labelling), labels) for index in range(len(table.rows))]
