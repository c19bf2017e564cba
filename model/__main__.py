"""Prints the parameter counts of the paper's systems beside the paper's own: `python -m model`."""

import sys

from common.command_line import Parser
from common.errors import UserError
from model.inspection.parameter_counts import table


def main() -> int:
    """Prints the table and returns the exit status."""
    parser = Parser(prog="python -m model", description="Prints the parameter counts of the paper's systems.")
    try:
        parser.parse_all(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
