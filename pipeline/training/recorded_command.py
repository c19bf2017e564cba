"""The command line of a run in its settings.json. `pipeline.finetune --output RUN` and `pipeline.replay` repeat it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.run_records import SETTINGS

KEY = "command"
_NOT_RECORDED = ("output", "local_rank", "help", "version")
_PLACES = ("data",)
"""Flags whose value may be a path or a name."""


def words_of(args: argparse.Namespace, parser: Parser) -> tuple[str, ...]:
    """The command line that gives `args`, without --output. Paths are absolute, so that it holds in any directory."""
    words: list[str] = []
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if action.dest in _NOT_RECORDED or value == action.default:
            continue
        words.append(action.option_strings[0])
        if action.nargs != 0:
            words += [_absolute(action.dest, one) for one in (value if isinstance(value, list) else [value])]
    return tuple(words)


def _absolute(name: str, value: Any) -> str:
    """The value with an absolute path, if it is the path of something, or such a path with a weight behind a colon."""
    text = str(value)
    path, colon, weight = text.rpartition(":")
    for place, rest in ((text, ""), (path, colon + weight)):
        if place and (isinstance(value, Path) or name in _PLACES) and Path(place).exists():
            return f"{Path(place).absolute()}{rest}"
    return text


def with_recorded(words: Sequence[str]) -> Sequence[str]:
    """`words`, behind those of the run in their --output if they name no task.

    Raises UserError if the record of that run is damaged.
    """
    if any(word.partition("=")[0] == "--task" for word in words):
        return words
    output = _output_of(words)
    if output is None:
        return words
    runs = [output, *sorted(output.glob("seed-*"))]
    run = next((run for run in runs if (run / SETTINGS).exists()), None)
    if run is None:
        return words
    return [*read_recorded(run), *words]


def read_recorded(run: Path) -> list[str]:
    """The recorded command line of `run`, without --output; [] if an older version made it.

    Raises UserError if settings.json is damaged.
    """
    return run_directory.read_settings(run).get(KEY) or []


def _output_of(words: Sequence[str]) -> Path | None:
    for word, following in zip(words, [*words[1:], ""]):
        flag, equals, value = word.partition("=")
        if flag == "--output":
            return Path(value if equals else following)
    return None
