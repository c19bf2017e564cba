"""Reads JSON files, and checks them against a type by pydantic. What is wrong is a UserError of one line.

Strings, numbers and booleans are not converted into each other. NaN and infinity are refused where the type is
`Finite`, and in `read_object`. A person may have written what `read_object` reads, so it also refuses a key that an
object has twice. pydantic is imported when the first file is read, because it takes a third of a second.
"""

import functools
import json
import math
import re
import reprlib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Interval

from common.errors import UserError

T = TypeVar("T")
Extra = Literal["forbid", "ignore"]

MAX_BYTES = 256 << 20  # no JSON file of this project is larger: a manifest of 100,000 shards has 20 MB

Count = Annotated[int, Interval(ge=0, lt=2**63)]
Positive = Annotated[int, Interval(ge=1, lt=2**63)]
Finite = Annotated[float, Interval(gt=-math.inf, lt=math.inf)]
Probability = Annotated[float, Interval(ge=0.0, le=1.0)]
_COMMENT = re.compile(rb"""(?m)(?:^|[,{}\[\]"\w])[ \t]*(//|/\*|#)""")


def read_bytes(path: Path, remedy: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Returns the content of a regular file. UserError, ending with `remedy`: it cannot be read, or is too large."""
    fault = ""
    try:
        if not path.is_file():  # opening a FIFO would wait until somebody writes into it
            fault = "is no regular file" if path.exists() else "does not exist"
        elif path.stat().st_size > max_bytes:
            fault = f"has more than {max_bytes:,} bytes"
        else:
            return path.read_bytes()
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
    raise UserError(f"{path} {fault}; {remedy}")


def read_text(path: Path, remedy: str, max_bytes: int = MAX_BYTES) -> str:
    """Returns the content of the regular UTF-8 file `path`. Raises UserError as `read_bytes`, or if it is not UTF-8."""
    try:
        return read_bytes(path, remedy, max_bytes).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start:,}); {remedy}") from None


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """Returns the object in the JSON file `path`. Raises UserError as `read_bytes`, or if it holds no JSON object."""
    return parse_object(read_bytes(path, remedy), path, remedy)


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"it has the key {reprlib.repr(repeated)} twice")


def parse_object(content: bytes, source: Path | str, remedy: str, allow_nan: bool = False) -> dict[str, Any]:
    """Returns the JSON object in `content`, which was read from `source`. Raises UserError for anything else."""
    from pydantic_core import from_json

    try:
        value = from_json(content, allow_inf_nan=allow_nan)  # which limits the nesting and the digits
        json.loads(content, object_pairs_hook=_refuse_repeated_keys)
    except ValueError as error:
        comment = _COMMENT.search(content)
        reason = f"JSON has no comments, {comment[1].decode()!r}" if comment else error
        raise UserError(f"{source} is no valid JSON ({reason}); {remedy}") from None
    if not isinstance(value, dict):
        raise UserError(f"{source} holds no JSON object; {remedy}")
    return value


def read_as(path: Path, kind: type[T], remedy: str, extra: Extra = "forbid") -> T:
    """Returns the content of the JSON file `path` as a `kind`. Raises UserError as `read_bytes` and `check_as`."""
    return _parse_as(read_bytes(path, remedy), kind, path, remedy, extra)


def check_as(content: Any, kind: type[T], source: Path | str, remedy: str, extra: Extra = "forbid") -> T:
    """Returns the parsed JSON of `source` as a `kind`: a dataclass, TypedDict or other annotated type.

    UserError: a key is missing or (but for `extra` "ignore") unknown, or a value has another type or is out of bounds.
    """
    from pydantic_core import to_json

    # As JSON, because strict checks take a list for a tuple, and an object for a dataclass, there only.
    return _parse_as(to_json(content), kind, source, remedy, extra)


def _parse_as(content: bytes, kind: type[T], source: Path | str, remedy: str, extra: Extra) -> T:
    from pydantic import ValidationError

    try:
        value: T = _adapter(kind).validate_json(content, strict=True, extra=extra)  # type: ignore[arg-type]
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        key = repr(".".join(map(str, fault["loc"]))[:80])[1:-1] or "the content"
        wanted = fault["msg"].removeprefix("Input ").removeprefix("Value error, ")
        said = f"has {key} = {reprlib.repr(fault['input'])}, which {wanted}"
        if fault["type"] == "json_invalid":
            said = f"is no valid JSON ({fault['msg'].removeprefix('Invalid JSON: ')})"
        elif fault["type"].startswith("missing"):
            said = f"lacks the key {key}"
        elif fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            said = f"has the unknown key {key}"
        raise UserError(f"{source} {said}; {remedy}") from None
    return value


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
