"""Prints the parameter counts of the paper's systems beside the paper's own: `python -m model`."""

import sys
from collections.abc import Sequence

from common.command_line import Parser, entry_point
from model.counts import table


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints the table."""
    Parser(prog="python -m model", description="Prints the parameter counts of the paper's systems.").parse_all(argv)
    print(table())


if __name__ == "__main__":
    sys.exit(main())
