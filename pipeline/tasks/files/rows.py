"""Turns the rows of a table into examples, by the columns that the user names, and finds the labels in them."""

import decimal
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from common.errors import UserError
from common.text import encodable
from pipeline.tasks.files.tables import Table

MAX_LABELS = 1000  # a column with more different values is no label
MAX_NAMED = 10  # labels that a message names

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)

Labelling = Literal["required", "optional", "ignored"]
"""What is done with the column of labels: training and dev rows need one, test rows may have one."""


@dataclass(frozen=True)
class Columns:
    """The columns of tables with a task's examples.

    Attributes:
        text: the text; the tokens of tagging; the passage of questions with choices.
        second_text: the second text of a pair, or the question; None if there is none.
        label: the label, the number, the tags or the right choice.
        choices: a column for each choice, or one column with a list of them.
        label_names: of labels that a row has as a 0 or 1 for each, in this order; none if they are given by name.
    """

    text: str
    second_text: str | None = None
    label: str = "label"
    choices: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()


class ExampleRow:
    """A row of a table. Its methods raise UserError, with file and line, for what is not as it should be.

    Attributes:
        label: the value in the column of labels; None if it is missing, or labels are ignored.
        has_label: whether there is such a column, and it is read.
        lacks_label: whether other rows have a label, and this one has not even an empty one.
    """

    def __init__(self, table: Table, index: int, columns: Columns, labelling: Labelling = "required") -> None:
        self._table, self._index, self._row = table, index, table.rows[index]
        self._needs_label = labelling == "required"
        self.id, self.columns = str(index) if table.ids is None else table.ids[index], columns
        self.label = None if labelling == "ignored" else self._row.get(columns.label)
        self.has_label = labelling != "ignored" and columns.label in table.columns
        self.lacks_label = self.has_label and columns.label not in self._row

    def mistake(self, text: str) -> UserError:
        """The error that names the place of the row."""
        return UserError(f"{self._table.place(self._index)}: {text}")

    def value(self, column: str) -> Any:
        """What is in a column; None if it is missing or an empty cell."""
        return None if (value := self._row.get(column)) == "" else value

    def text(self, column: str, may_be_empty: bool = False) -> str:
        """The text in a column. Texts of official files may always be empty."""
        value = self._row.get(column)
        may_be_empty = may_be_empty or self._table.is_official
        if value is None or (isinstance(value, str) and not value.strip() and not may_be_empty):
            raise self.mistake(f"column {column!r} is empty; fill it, or remove the row")
        return self._check_text(value, f"column {column!r}")

    def texts(self, column: str, item: str) -> tuple[str, ...]:
        """The list of texts in a column; `item` says what each of them is."""
        return tuple(self._check_text(value, item) for value in self.check_list(column, self._row.get(column)))

    def _check_text(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            raise self.mistake(f"{name} is {value!r:.80}, not a text; correct it, or check --data and --task")
        return encodable(value)

    def check_list(self, column: str, value: Any) -> Sequence[Any]:
        """Returns the value of a column, which must be a list."""
        if not isinstance(value, (list, tuple)):
            raise self.mistake(f"column {column!r} is no list; write JSON Lines or Parquet with lists")
        return value

    def name_of(self, value: Any) -> str | None:
        """The name of one label, see `name_of`; None for a missing one, which only test rows may have."""
        if isinstance(value, (list, tuple, dict)):
            remedy = "correct it, or check --task and --label-column"
            raise self.mistake(f"column {self.columns.label!r} holds {value!r:.80}, which is no single label; {remedy}")
        name = name_of(value)
        if name is None and self._needs_label:
            raise self.mistake(f"column {self.columns.label!r} is empty; fill it, or remove the row")
        return name

    def class_of(self, value: Any, labels: Sequence[str]) -> int | None:
        """The number of a class by its name; None for a missing one."""
        name = self.name_of(value)
        if name is None:
            return None
        if name not in labels:
            known = ", ".join(f"{label!r:.80}" for label in labels[:MAX_NAMED])
            more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
            remedy = "correct it, or check --task and the training rows"
            raise self.mistake(f"the label {name!r:.80} is none of {known}{more}; {remedy}")
        return labels.index(name)

    def number(self) -> float | None:
        """The label of a regression; None for a missing one."""
        if self.name_of(self.label) is None:
            return None
        number = number_of(self.label)
        if not abs(number) <= 1e18:  # fp32 adds up their squares
            remedy = "correct it, or use --task classification"
            raise self.mistake(f"column {self.columns.label!r} holds {self.label!r:.80}, which is no number; {remedy}")
        return number


def name_of(value: Any) -> str | None:
    """The name of a label; None for a missing or a blank one. 1 and 1.0 are "1"; true is "true".

    Blanks around a name do not count, and neither does the way in which Unicode spells its letters (NFC).
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return unicodedata.normalize("NFC", str(value)).strip() or None


def number_of(value: Any) -> float:
    """The number that a cell holds, also as text in ASCII digits; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | decimal.Decimal):
        return math.nan
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def rows_of(table: Table, columns: Columns, labelling: Labelling = "required") -> Iterator[ExampleRow]:
    """The rows of a table."""
    return (ExampleRow(table, index, columns, labelling) for index in range(len(table.rows)))


def check_columns(table: Table, columns: Columns, labelled: bool) -> None:
    """Raises UserError if the table lacks a column that is read; the line names those that are there."""
    read: list[tuple[str, str | None]] = [("text-column", columns.text), ("second-text-column", columns.second_text)]
    read += [("choice-columns", name) for name in columns.choices]
    read += [("label-column", columns.label)] if labelled else []
    for flag, name in read:
        if name is not None and name not in table.columns:
            fault = f"has no column {name!r}; it has {', '.join(table.columns)}"
            remedy = "check --task; of an own task, " if labelled else ""
            raise UserError(f"{table.source} {fault}; {remedy}name the column with --{flag}")


def find_classes(table: Table, columns: Columns, values_of: Callable[[ExampleRow], Iterable[Any]]) -> tuple[str, ...]:
    """The names of the classes of a task, from its training rows; `values_of` gives the labels in a row.

    They are those that occur, in the order of their names, or of their numbers if all are whole numbers. A data set
    that names its classes decides their order. Raises UserError: there is only one class, or more than `MAX_LABELS`.
    """
    given = tuple(name for name in map(name_of, table.class_names.get(columns.label, ())) if name is not None)
    names = set(given)
    for row in () if given else rows_of(table, columns, "optional"):
        names.update(name for value in values_of(row) if (name := row.name_of(value)) is not None)
    column = f"column {columns.label!r}"
    if len(names) < len(given):
        shown = ", ".join(map(repr, table.class_names[columns.label]))
        raise UserError(f"{table.source}: classes of {column} differ in blanks or spelling only: {shown}; rename one")
    if not 2 <= len(names) <= MAX_LABELS:
        count = f"{len(names):,} different labels" if len(names) > 1 else f"only the label {max(names, default='')!r}"
        count, limits = count if names else "no label", f"2 to {MAX_LABELS:,}"
        raise UserError(f"{table.source}: {column} holds {count}, and a task needs {limits}; check --label-column")
    are_numbers = all(re.fullmatch("-?[0-9]{1,19}", name) for name in names)
    return given or tuple(sorted(names, key=lambda name: (int(name) if are_numbers else 0, name)))
