"""What the tasks' files hold, as text: one example each, whatever the file's layout was."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import UserError


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts, of a GLUE task.

    Attributes:
        id: the file's index of a test example, else the number of its row, from 0.
        second: None where the task has single texts.
        label: the number of the class, or a similarity; None where it is not known.
    """

    id: str
    first: str
    second: str | None = None
    label: int | float | None = None


@dataclass(frozen=True)
class Passage:
    """A passage of SQuAD, which several questions share."""

    text: str


@dataclass(frozen=True)
class Question:
    """A question of SQuAD.

    Attributes:
        answers: (text, start) with the text exactly at that character of the passage; none where it is unanswerable.
        labelled: whether the file says what the answers are.
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
        label: the number of the right option; None where it is not known.
        level: middle or high, "" where it is not known.
    """

    id: str
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None = None
    level: str = ""


Examples = Sequence[TextExample] | Sequence[Question] | Sequence[ChoiceExample]
Splits = dict[str, Examples]
"""Examples by split: train, dev, test; of MNLI dev_matched, dev_mismatched, and the same of test, and diagnostic."""


def class_of(label: Any, labels: Sequence[str], place: str) -> int:
    """The number of the class called `label`. Raises UserError, which names `place`, where there is none."""
    if label in labels:
        return labels.index(label)
    raise UserError(f"{place}: the label {label!r} is not one of {', '.join(labels)}; mend it, or check --task")


_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


def text_of(value: Any, name: str, place: str | Callable[[], str]) -> str:
    """A field that holds text. Half a surrogate pair, which JSON can spell and UTF-8 cannot, becomes U+FFFD.

    Args:
        name, place: of the field, for a person; a `place` that takes long to find is asked for only where it is wanted.

    Raises UserError where it holds something else.
    """
    if not isinstance(value, str):
        where = place if isinstance(place, str) else place()
        raise UserError(f"{where}: {name} is {value!r}, not a text; mend it, or check --data and --task")
    return _HALF_A_PAIR.sub("\ufffd", value)


def read_text(path: Path) -> str:
    """A file's text; a byte-order mark is left out. Raises UserError where it cannot be read."""
    try:
        # Line ends stay as they are: a text may hold any character, and offsets must not shift.
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check --data") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text; get the file again, or convert it") from None
