"""python -m model: the parameter counts of the paper's systems, beside the paper's own."""

import sys

from model.parameter_counts import table

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print("python -m model takes no arguments; leave them out", file=sys.stderr)
        sys.exit(2)
    print(table())
