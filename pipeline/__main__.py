"""Runs a command by its name: `python -m pipeline predict --run RUN ...`; in an installation, `albert predict ...`.

Without a command it lists all of them. `data JOB ...` does what `python -m data_prep JOB ...` does.
"""

import ast
import runpy
import sys
from pathlib import Path

from common import PREFIX
from common.command_line import Parser, in_one_line
from common.environment import CONSOLE_SCRIPT
from common.errors import UserError
from common.text import did_you_mean

DATA = "data"


def commands() -> dict[str, str]:
    """The first line of each command's docstring, by name. Nothing is imported for it."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    first = {path.stem: (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "") for path in files}
    return {name: text.partition("\n")[0] for name, text in first.items()} | {
        DATA: "Runs the jobs that turn raw text into shards.",
    }


def parser() -> Parser:
    """The command line, without the flags of the commands."""
    listed = "\n".join(f"    {name:<10}  {summary}" for name, summary in commands().items())
    p = Parser(
        prog=CONSOLE_SCRIPT if Path(sys.argv[0]).name == CONSOLE_SCRIPT else "python -m pipeline",
        description="Pre-trains and fine-tunes ALBERT, from raw text to exported models.",
        epilog=f"{listed}\n\nEach has --help.",
    )
    p.add_argument("command", metavar="COMMAND", help="one of these:")
    return p


def main() -> int:
    """Runs the command line of this process, and returns the exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in commands():
        return in_one_line(lambda: _refuse(name))
    del sys.argv[1]
    module = f"{PREFIX}data_prep.__main__" if name == DATA else f"{PREFIX}pipeline.{name}"
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def _refuse(name: str) -> None:
    """Prints the help, or raises UserError for a command that does not exist."""
    if name.startswith("-"):
        parser().parse_all([name])
    raise UserError(f"unknown command {name}; {did_you_mean(name, commands(), 'see --help')}")


if __name__ == "__main__":
    sys.exit(main())
