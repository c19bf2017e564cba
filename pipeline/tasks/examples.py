"""The examples of all tasks as text, independent of the layout of their files."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError, one_line
from common.files.json_files import read_bytes


@dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts with its label.

    Attributes:
        id: of a test example the file's own index; of any other the number of its row, from 0.
        second: None if the task has single texts.
        label: the number of the class, or the number of a regression; None if it is not known.
    """

    id: str
    first: str
    second: str | None = None
    label: int | float | None = None


@dataclass(frozen=True)
class Passage:
    """A passage of SQuAD; several questions share it."""

    text: str


@dataclass(frozen=True)
class Question:
    """A question of SQuAD.

    Attributes:
        answers: (text, start): the passage has the text at character `start`; empty for an unanswerable question.
        labelled: whether the file gives the answers.
    """

    id: str
    text: str
    passage: Passage
    answers: tuple[tuple[str, int], ...] = ()
    labelled: bool = True


@dataclass(frozen=True)
class ChoiceExample:
    """A question of RACE.

    Attributes:
        label: the number of the right option; None if it is not known.
        level: "middle" or "high"; "" if it is not known.
    """

    id: str
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None = None
    level: str = ""


@dataclass(frozen=True)
class TagExample:
    """A text in tokens, each with a tag.

    Attributes:
        labels: the number of each token's tag; None if the tags are not known.
    """

    id: str
    tokens: tuple[str, ...]
    labels: tuple[int, ...] | None = None


Examples = Sequence[TextExample] | Sequence[Question] | Sequence[ChoiceExample] | Sequence[TagExample]
Splits = dict[str, Examples]
"""Examples by split: train, dev and test. MNLI has dev_matched, dev_mismatched, test_matched, test_mismatched and
diagnostic instead of dev and test."""


_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")  # fits int64, and each number is spelled in one way


def index_of(text: str, place: str) -> str:
    """The index of an example, as a GLUE test file spells it. Raises UserError, which names `place`, for other text."""
    if _INDEX.fullmatch(text) is None:
        raise UserError(f"{place}: the index {text!r} is no whole number; correct the line, or get the file again")
    return text


def class_of(label: Any, labels: Sequence[str], place: str) -> int:
    """The number of the class called `label`. Raises UserError, which names `place`, for an unknown class."""
    if label in labels:
        return labels.index(label)
    raise UserError(f"{place}: the label {label!r} is not one of {', '.join(labels)}; correct it, or check --task")


def text_of(value: Any, name: str, place: str | Callable[[], str]) -> str:
    """The text of a field.

    Args:
        value: of the field.
        name: of the field, for the error message.
        place: file and line, for the error message; a function is called only if there is an error.

    Raises UserError if the value is not a text.
    """
    if not isinstance(value, str):
        where = place if isinstance(place, str) else place()
        raise UserError(f"{where}: {name} is {value!r}, not a text; correct it, or check --data and --task")
    return value


MAX_FILE_BYTES = 4 << 30

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(text: str, path: Path, first_line: int = 1) -> Any:
    """The JSON in `text`, which begins in line `first_line` of `path`. Raises UserError for broken JSON.

    A lone surrogate, which JSON can write but UTF-8 cannot, becomes U+FFFD.
    """
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            units = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
            value = json.loads(units.decode("utf-16", "replace"))
        return value
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(f"{path}, line {line}: broken JSON ({error.msg}); get the file again") from None
    except (ValueError, RecursionError) as error:  # an integer of too many digits; too many brackets
        raise UserError(f"{path}, line {first_line}: broken JSON ({one_line(error)}); get the file again") from None


def read_text(path: Path) -> str:
    """The text of a file without its byte-order mark. Raises UserError if the file cannot be read as UTF-8."""
    content = read_bytes(path, "check the name", MAX_FILE_BYTES)
    try:
        # Line ends are not translated: offsets into the text must not shift.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text; get the file again, or convert it") from None
