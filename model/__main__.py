"""Prints the parameter counts of the paper's systems beside the paper's own: `python -m model`."""

import sys

from common.command_line import Parser, in_one_line
from model.inspection.parameter_counts import table


def main() -> int:
    """Prints the table and returns the exit status."""
    parser = Parser(prog="python -m model", description="Prints the parameter counts of the paper's systems.")

    def run() -> None:
        parser.parse_all(sys.argv[1:])
        print(table())

    return in_one_line(run)


if __name__ == "__main__":
    sys.exit(main())
