"""The command line of a measurement."""

import sys
from collections.abc import Callable, Sequence

from common.command_line import in_one_line


def entry_point(main: Callable[[Sequence[str]], int | None]) -> Callable[[Sequence[str] | None], int]:
    """Makes `main` take the words of the command line by default, and return the exit status (`in_one_line`)."""

    def run(argv: Sequence[str] | None = None) -> int:
        return in_one_line(lambda: main(sys.argv[1:] if argv is None else argv))

    return run
