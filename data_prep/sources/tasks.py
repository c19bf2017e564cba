"""Files of tasks, such as those of GLUE, SQuAD and RACE, as they were downloaded -> their texts."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep.sources import find_files
from data_prep.sources.books import decode
from data_prep.sources.opening import COMPRESSED, open_input

_FILE = re.compile(rf"\.(?:tsv|csv|txt|json|jsonl){COMPRESSED}", re.IGNORECASE)


def task_files(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Returns (path, name) of the task files in directories. UserError: one holds none."""
    kind = ".tsv, .csv, .txt, .json or .jsonl file of a task"
    return [
        (file, f"{path.resolve().name}/{name}" if path.is_dir() else name)
        for path in paths
        for file, name in find_files(path, _FILE.search, kind)
    ]


def task_texts(path: Path) -> Iterator[str]:
    """Yields the texts of a task file: every string in JSON, in a file or in its lines; else the cells of each line."""
    with open_input(path) as file:
        content = decode(file.read()) or ""
    if content.lstrip()[:1] in ("{", "["):
        try:
            yield from _strings(json.loads(content))
            return
        except (ValueError, RecursionError):
            pass  # an object on each line, or no JSON
    for line in content.split("\n"):
        try:
            yield from _strings(json.loads(line)) if line[:1] in ("{", "[") else line.split("\t")
        except (ValueError, RecursionError):
            yield from line.split("\t")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
