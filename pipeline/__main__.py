"""Lists the commands of pipeline/: `python -m pipeline`."""

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, entry_point

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


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints the list."""
    Parser(prog="python -m pipeline", description="Lists the commands of this package.").parse_all(argv)
    for name, sentence in commands().items():
        start = "deepspeed --module" if name in LAUNCHED else "python -m"
        print(f"{f'{start} pipeline.{name}':40}{sentence}")
    print("\nEach has --help. Data preparation: python -m data_prep --help.")


if __name__ == "__main__":
    sys.exit(main())
