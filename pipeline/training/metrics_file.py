"""Reads `metrics.jsonl`, and drops the records that a run will write again; the metrics of each held-out set."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic
from common.files.json_files import parse_object, read_bytes

METRICS = "metrics.jsonl"
MAX_METRICS_BYTES = 4 << 30
MAX_VALUE = 1e300
OF_TENSORS = "trust_ratios"  # the one metric that is an object: a number for each tensor
_REMEDY = "restore it, or move it away"


def drop_after(run: Path, step: int) -> None:
    """Drops the records of later steps than `step`, and a last line that a kill cut short. The file is made if needed.

    Raises UserError: a line is JSON but no record.
    """
    kept = [line.decode() + "\n" for line, record in _complete_records(run) if record["step"] <= step]
    atomic.write_text(run / METRICS, "".join(kept))  # which also makes the name of a new file survive a power loss


def _complete_records(run: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each line that is complete JSON, with the record; none without a file. Raises UserError for one that is none."""
    path = run / METRICS
    content = read_bytes(path, _REMEDY, MAX_METRICS_BYTES) if os.path.lexists(path) else b""
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            record = parse_object(line, path, _REMEDY)
        except UserError:  # a kill or a full disk cut it short
            continue
        step = record.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or not isinstance(record.get("split"), str):
            raise UserError(f"{path}, line {number}, has no step or no split; {_REMEDY}")
        values = {name: value for name, value in record.items() if name != "split"}
        if wrong := next((name for name, value in values.items() if not _is_metric(value, name == OF_TENSORS)), None):
            raise UserError(f"{path}, line {number}: {wrong!r:.80} is no number; {_REMEDY}")
        yield line, record


def finite(value: Any) -> Any:
    """The value with null for numbers that JSON cannot write."""
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_metric(value: Any, may_be_object: bool = False) -> bool:
    """Whether a value is a number that fits a float, null, or an object of these where one may be."""
    if may_be_object and isinstance(value, dict):
        return all(map(_is_metric, value.values()))
    return value is None or (isinstance(value, int | float) and abs(value) <= MAX_VALUE)


def read_records(run: Path, *splits: str) -> list[dict[str, Any]]:
    """The records of `splits` ("train", "eval", "save") in a run's metrics.jsonl, by step; none without a file.

    Raises UserError for a file that cannot be read.
    """
    return [record for _, record in _complete_records(run) if record["split"] in splits]


def check_numbers(run: Path, record: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises UserError if a record of a run, or a part of one, lacks a number of `names`."""
    if lost := next((name for name in names if record.get(name) is None), None):
        raise UserError(f"{run / METRICS} lacks {lost!r} where it is needed; {_REMEDY}")


def parts_of(metrics: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The metrics of each held-out set without its prefix, by name; those of the only set by ""."""
    if not names:
        return {"": dict(metrics)}
    parts = {names[0]: {name: value for name, value in metrics.items() if "/" not in name}}
    for name in names[1:]:
        prefix = f"{name}/"
        parts[name] = {key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)}
    return parts
