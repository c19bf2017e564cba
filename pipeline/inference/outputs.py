"""Writes rows with their predictions: JSON Lines, CSV, TSV or Parquet, or JSON Lines to standard output."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError, one_line
from common.files import atomic, places
from pipeline.inference.inputs import PIPE

Rows = Sequence[dict[str, Any]]


def check_names(columns: Sequence[str], names: Sequence[str]) -> None:
    """Raises UserError if the input's `columns` have one of the `names` of the predictions."""
    if taken := next((name for name in names if name in columns), None):
        raise UserError(f"the input has a column {taken!r}, as the output will; rename it")


def check(out: str) -> None:
    """Raises UserError if `out` cannot be written."""
    if out == PIPE:
        return
    path = Path(out)
    if path.suffix.lower() not in WRITERS:
        raise UserError(f"--out {out} has none of the endings {', '.join(WRITERS)}; choose one, or - for a pipe")
    if os.path.lexists(path):
        raise UserError(f"--out {out} exists already; move it away, or choose another name")
    if not path.parent.is_dir():
        raise UserError(f"--out {out}: {path.parent} is not a directory; make it first")
    places.check_directory(path.parent)


def write(out: str, rows: Rows) -> None:
    """Writes the rows in the format of the ending of `out`. Raises UserError if the format cannot hold them."""
    if out == PIPE:
        sys.stdout.buffer.write(_json_lines(rows))  # UTF-8 whatever the terminal's encoding is
        sys.stdout.buffer.flush()
        return
    content = WRITERS[Path(out).suffix.lower()](rows)
    with atomic.replacing(Path(out)) as temporary:
        temporary.write_bytes(content)


def _json_lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows).encode()


def _csv(rows: Rows) -> bytes:
    return _separated(rows, ",")


def _tsv(rows: Rows) -> bytes:
    return _separated(rows, "\t")


def _separated(rows: Rows, separator: str) -> bytes:
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), delimiter=separator, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Lists and objects as JSON, a missing value as an empty cell."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value


def _parquet(rows: Rows) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = dict.fromkeys(name for row in rows for name in row)
    buffer = io.BytesIO()
    try:
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), buffer)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise UserError(
            f"the rows fit no Parquet file ({one_line(error)}); choose an --out that ends in .jsonl"
        ) from None
    return buffer.getvalue()


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}
"""By the ending of a file's name."""
