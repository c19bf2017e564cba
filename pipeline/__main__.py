"""Lists the commands of pipeline/: `python -m pipeline`."""

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser
from common.errors import UserError

LAUNCHED = ("pretrain", "finetune")
"""Commands that DeepSpeed's launcher starts on every GPU; the others are one process."""


def commands() -> dict[str, str]:
    """Each command of the package, by name, with the first sentence of its docstring. Imports none of them."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if not file.name.startswith("_"):
            docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            found[file.stem] = docstring.split("\n")[0]
    return {name: found[name] for name in sorted(found, key=lambda name: (name not in LAUNCHED, name))}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the list and returns the exit status."""
    parser = Parser(prog="python -m pipeline", description="Lists the commands of this package.")
    try:
        parser.parse_all(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, sentence in commands().items():
        start = "deepspeed --module" if name in LAUNCHED else "python -m"
        print(f"{f'{start} pipeline.{name}':40}{sentence}")
    print("\nEach has --help. Data preparation: python -m data_prep --help. Parameter counts: python -m model.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
