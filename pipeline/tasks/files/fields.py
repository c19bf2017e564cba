"""Texts, labels and JSON in files that may be broken: each mistake is a UserError with file and line."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError, one_line
from common.files import atomic
from common.files.json_files import read_bytes

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


def write_json(path: Path, value: object) -> Path:
    """Writes a submission as JSON, and returns its path."""
    atomic.write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    return path
