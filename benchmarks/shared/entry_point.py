"""The command line of a measurement."""

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from common.command_line import in_one_line


class EntryPoint(Protocol):
    """A command as a function."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Runs the command with the words `argv`, by default those of the command line. Returns the exit status."""
        ...


def entry_point(main: Callable[[Sequence[str]], int | None]) -> EntryPoint:
    """Makes `main` take the words of the command line by default, and return the exit status (`in_one_line`)."""

    def run(argv: Sequence[str] | None = None) -> int:
        return in_one_line(lambda: main(sys.argv[1:] if argv is None else argv))

    return run
