"""Turns the rows of a table into examples, by the columns that the user names, and finds the labels in them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from common.errors import UserError
from pipeline.tasks.examples import ChoiceExample, Examples, Passage, Question, TagExample, TextExample, text_of
from pipeline.tasks.files.tables import Row, Table
from pipeline.tasks.task import Columns, Kind

MAX_LABELS = 1000
"""A column with more different values is no label."""

FLAGS = {
    "text": "--text-column",
    "second_text": "--second-text-column",
    "label": "--label-column",
    "choices": "--choice-columns",
}
"""The flag that names each of `Columns`."""


def check_columns(table: Table, kind: Kind, columns: Columns, labelled: bool) -> None:
    """Raises UserError if the table lacks a column that is read; the line names those that are there."""
    wanted = [("text", columns.text)]
    if columns.second_text is not None:
        wanted.append(("second_text", columns.second_text))
    if kind == "choice":
        wanted += [("choices", name) for name in columns.choices]
    if labelled:
        wanted.append(("label", columns.label))
    for field, name in wanted:
        if name not in table.columns:
            raise UserError(
                f"{table.source} has no column {name!r}; it has {', '.join(table.columns)}; "
                f"name one with {FLAGS[field]}"
            )


def find_labels(table: Table, kind: Kind, columns: Columns) -> tuple[str, ...]:
    """The names of a task's labels, from its training rows.

    Classes and tags are those that occur, in the order of their names, or of their numbers if all are whole numbers.
    A data set that names its classes decides their order. A regression has one label, called as the column. The choices
    are called as their columns, or by their numbers from 0 if one column has a list of them.

    Raises:
        UserError: there is only one class, or there are more than `MAX_LABELS`.
    """
    if kind == "regression":
        return (columns.label,)
    if kind == "choice":
        if len(columns.choices) > 1:
            return columns.choices
        return tuple(str(number) for number in range(len(_choices(table, 0, columns))))
    given = table.class_names.get(columns.label)
    names = set(given or ())
    for index, row in enumerate(() if given else table.rows):
        names.update((_tag_names if kind == "tagging" else _class_names)(table, index, row, columns))
    if len(names) < 2:
        found = f"only {min(names)!r}" if names else "no label"
        raise UserError(f"{table.source}: column {columns.label!r} holds {found}; a task needs two different labels")
    if len(names) > MAX_LABELS:
        raise UserError(
            f"{table.source}: column {columns.label!r} holds {len(names):,} different labels, more than "
            f"{MAX_LABELS:,}; check --label-column"
        )
    return given or tuple(sorted(names, key=_order(names)))


def _order(names: set[str]) -> Callable[[str], tuple[int, str]]:
    numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return lambda name: (int(name) if numbers else 0, name)


def _class_names(table: Table, index: int, row: Row, columns: Columns) -> Iterator[str]:
    if (name := _name(table, index, row.get(columns.label), columns)) is not None:
        yield name


def _tag_names(table: Table, index: int, row: Row, columns: Columns) -> Iterator[str]:
    for tag in _list(row.get(columns.label) or (), columns.label, table.place(index)):
        if (name := _name(table, index, tag, columns)) is not None:
            yield name


def _name(table: Table, index: int, value: Any, columns: Columns) -> str | None:
    """`name_of` one label. Raises UserError for a list or an object."""
    if isinstance(value, (list, tuple, dict)):
        raise UserError(
            f"{table.place(index)}: column {columns.label!r} holds {value!r}, which is no single label; correct it, "
            "or check --task and --label-column"
        )
    return name_of(value)


def name_of(value: Any) -> str | None:
    """The name of a label; None for a missing one. 1 and 1.0 are "1"; true is "true"."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


Labelling = Literal["required", "optional", "ignored"]
"""What is done with the column of labels: training and dev rows need one, test rows may have one."""


def read_examples(
    table: Table, kind: Kind, columns: Columns, labels: Sequence[str], labelling: Labelling = "required"
) -> Examples:
    """The examples of one split; their ids are the numbers of their rows, from 0.

    Args:
        labels: of the task, in the order of the logits.
    Raises:
        UserError: a column is missing, a text is empty or no text, or a label is missing, unknown or no number. It
            names the file and its line.
    """
    strict = labelling == "required"
    check_columns(table, kind, columns, strict)
    labelled = labelling != "ignored" and columns.label in table.columns
    known = labels if labelled else None
    if kind == "tagging":
        return _read(table, lambda index, row: _tagged(table, index, row, columns, known, strict))
    if kind == "choice":
        return _read(table, lambda index, row: _choice(table, index, row, columns, labels, labelled, strict))
    if kind in ("spans", "conditioned_spans"):
        return _questions(table, columns)
    numbers = None if known is None or kind == "regression" else {name: number for number, name in enumerate(known)}

    def read(index: int, row: Row) -> TextExample:
        label: int | float | None = None
        if known is not None:
            label = (
                _number(table, index, row, columns, strict)
                if numbers is None
                else _class(table, index, row.get(columns.label), columns, numbers, strict)
            )
        second = None if columns.second_text is None else _text(table, index, row, columns.second_text)
        return TextExample(str(index), _text(table, index, row, columns.text), second, label)

    return _read(table, read)


def _read(table: Table, read: Callable[[int, Row], Any]) -> Any:
    return [read(index, row) for index, row in enumerate(table.rows)]


def _text(table: Table, index: int, row: Row, column: str, may_be_empty: bool = False) -> str:
    value = row.get(column)
    if value is None or (isinstance(value, str) and not value.strip() and not may_be_empty):
        raise UserError(f"{table.place(index)}: column {column!r} is empty; fill it, or remove the row")
    return text_of(value, f"column {column!r}", lambda: table.place(index))


def _class(
    table: Table, index: int, value: Any, columns: Columns, numbers: Mapping[str, int], strict: bool
) -> int | None:
    name = _name(table, index, value, columns)
    if name is None:
        _missing(table, index, columns, strict)
        return None
    if name not in numbers:
        raise UserError(
            f"{table.place(index)}: the label {name!r} does not occur in training, which has {_some(list(numbers))}; "
            "correct it, or add training examples"
        )
    return numbers[name]


def _missing(table: Table, index: int, columns: Columns, strict: bool) -> None:
    if strict:
        raise UserError(f"{table.place(index)}: column {columns.label!r} is empty; fill it, or remove the row")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def _number(table: Table, index: int, row: Row, columns: Columns, strict: bool) -> float | None:
    value = row.get(columns.label)
    if value is None or name_of(value) is None:
        _missing(table, index, columns, strict)
        return None
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > 1e18:  # fp32 adds up their squares
        raise UserError(
            f"{table.place(index)}: column {columns.label!r} holds {value!r}, which is no number; correct it, "
            "or use --task classification"
        )
    return number


def _list(value: Any, column: str, place: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise UserError(f"{place}: column {column!r} is no list; write JSON Lines or Parquet with lists")
    return value


def _tagged(
    table: Table, index: int, row: Row, columns: Columns, labels: Sequence[str] | None, strict: bool
) -> TagExample:
    place = table.place(index)
    given = _list(row.get(columns.text) or (), columns.text, place)
    if not given:
        raise UserError(f"{place}: column {columns.text!r} is empty; fill it, or remove the row")
    tokens = tuple(text_of(token, "a token", place) for token in given)
    tags = None if labels is None else row.get(columns.label)
    if tags is None:
        if labels is not None:
            _missing(table, index, columns, strict)
        return TagExample(str(index), tokens)
    if len(_list(tags, columns.label, place)) != len(tokens):
        raise UserError(f"{place}: {len(tokens)} tokens, but {len(tags)} tags; correct the row, or remove it")
    numbers = {name: number for number, name in enumerate(labels or ())}
    found = [_class(table, index, tag, columns, numbers, strict) for tag in tags]
    known = [tag for tag in found if tag is not None]
    return TagExample(str(index), tokens, tuple(known) if len(known) == len(found) else None)


def _choices(table: Table, index: int, columns: Columns) -> tuple[str, ...]:
    row, place = table.rows[index], table.place(index)
    if len(columns.choices) > 1:
        return tuple(_text(table, index, row, name) for name in columns.choices)
    (name,) = columns.choices
    if isinstance(row.get(name), str):
        raise UserError(f"{place}: column {name!r} is no list of choices; name a column for each with --choice-columns")
    found = tuple(
        text_of(choice, f"a choice in column {name!r}", place) for choice in _list(row.get(name), name, place)
    )
    if len(found) < 2:
        raise UserError(f"{place}: column {name!r} holds {len(found)} choices; give at least two")
    return found


def _choice(
    table: Table, index: int, row: Row, columns: Columns, labels: Sequence[str], labelled: bool, strict: bool
) -> ChoiceExample:
    choices = _choices(table, index, columns)
    if len(choices) != len(labels):
        raise UserError(
            f"{table.place(index)}: {len(choices)} choices instead of {len(labels)}; give every row as many as the "
            "first training row"
        )
    question = ""
    if columns.second_text is not None:
        question = _text(table, index, row, columns.second_text, may_be_empty=True)
    label = None
    if labelled:
        label = _right_choice(table, index, row, columns, labels, strict)
    return ChoiceExample(str(index), _text(table, index, row, columns.text), question, choices, label)


def _right_choice(
    table: Table, index: int, row: Row, columns: Columns, labels: Sequence[str], strict: bool
) -> int | None:
    """The number of the right choice, which is given as a column's name, a number from 0, or a letter from A."""
    name = name_of(row.get(columns.label))
    if name is None:
        _missing(table, index, columns, strict)
        return None
    numbers = {name: number for number, name in enumerate(labels)}
    by_number = {str(number): number for number in range(len(labels))}
    by_letter = {chr(ord("A") + number): number for number in range(min(26, len(labels)))}
    found = numbers.get(name, by_number.get(name, by_letter.get(name)))
    if found is None:
        raise UserError(
            f"{table.place(index)}: the right choice {name!r} is none of {', '.join(labels)}, nor a number from 0 to "
            f"{len(labels) - 1}, nor a letter; correct it"
        )
    return found


def _questions(table: Table, columns: Columns) -> list[Question]:
    """Questions about passages, without their answers."""
    passages: dict[str, Passage] = {}
    found = []
    assert columns.second_text is not None
    for index, row in enumerate(table.rows):
        context = _text(table, index, row, columns.second_text)
        passage = passages.setdefault(context, Passage(context))
        question = _text(table, index, row, columns.text)
        found.append(Question(str(index), question, passage, labelled=False))
    return found
