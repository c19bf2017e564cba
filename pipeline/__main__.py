"""Runs a command by its name: `python -m pipeline predict --run RUN ...`; in an installation, `albert predict ...`.

Without a command it lists all of them. `data JOB ...` does what `python -m data_prep JOB ...` does. `completion SHELL`
prints what completes commands, flags and files in a shell.
"""

import argparse
import ast
import difflib
import importlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import PREFIX
from common.command_line import PATHS, Parser, in_one_line
from common.errors import UserError

DATA, COMPLETION = "data", "completion"
SHELLS = ("bash", "zsh", "tcsh")


def commands() -> dict[str, str]:
    """The first line of each command's docstring, by name. Nothing is imported for it."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    first = {path.stem: (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "") for path in files}
    return {name: text.partition("\n")[0] for name, text in first.items()} | {
        DATA: "Runs the jobs that turn raw text into shards.",
        COMPLETION: f"Prints the completion of these words for a shell: {', '.join(SHELLS)}.",
    }


def parser() -> Parser:
    """The command line, without the flags of the commands."""
    listed = "\n".join(f"    {name:<10}  {summary}" for name, summary in commands().items())
    p = Parser(
        prog="python -m pipeline",
        description="Pre-trains and fine-tunes ALBERT, from raw text to exported models.",
        epilog=f"{listed}\n\nEach has --help.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("command", metavar="COMMAND", help="one of these:")
    return p


def completion(shell: str) -> str:
    """A script that completes all commands and flags in a shell. UserError: the package for it is not installed."""
    try:
        import shtab
    except ImportError:
        raise UserError("completion needs the package shtab; pip install shtab") from None
    root = Parser(prog="albert")
    for name, summary, made in _parsers():
        _add(root, name, summary, made)
    for action in _actions(root):
        if PATHS.match(str(action.metavar)):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(root, shell))


def _parsers() -> Iterator[tuple[str, str, Parser]]:
    """Name, summary and command line of each command."""
    jobs = importlib.import_module(f"{PREFIX}data_prep.__main__")
    for name, summary in commands().items():
        made = Parser(prog=f"albert {name}")
        if name == DATA:
            for job, its in jobs.JOBS.items():
                of_job = Parser(prog=f"albert {DATA} {job}")
                importlib.import_module(PREFIX + its.module).add_arguments(of_job)
                _add(made, job, its.summary, of_job)
        elif name == COMPLETION:
            made.add_argument("shell", choices=SHELLS)
        else:
            module = f"settings.{name}_flags" if name in ("pretrain", "finetune") else name
            made = importlib.import_module(f"{PREFIX}pipeline.{module}").parser()
        yield name, summary, made


def _add(root: Parser, name: str, summary: str, made: Parser) -> None:
    """Gives `root` a subcommand whose parser exists already."""
    groups = root._subparsers._group_actions if root._subparsers else [root.add_subparsers()]
    choices: Any = groups[0]
    choices.add_parser(name, help=summary)
    choices.choices[name] = made


def _actions(root: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in root._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for made in action.choices.values():
                yield from _actions(made)


def main() -> int:
    """Runs the command line of this process, and returns the exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in commands():
        return in_one_line(lambda: _refuse(name))
    if name == COMPLETION:
        return in_one_line(lambda: print(completion(_shell(sys.argv[2:]))))
    del sys.argv[1]
    module = f"{PREFIX}data_prep.__main__" if name == DATA else f"{PREFIX}pipeline.{name}"
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def _shell(words: list[str]) -> str:
    p = Parser(prog=f"python -m pipeline {COMPLETION}", description=commands()[COMPLETION])
    p.add_argument("shell", choices=SHELLS, help=f'bash: put eval "$(albert {COMPLETION} bash)" into ~/.bashrc')
    return str(p.parse_all(words).shell)


def _refuse(name: str) -> None:
    """Prints the help, or raises UserError for a command that does not exist."""
    if name.startswith("-"):
        parser().parse_all([name])
    near = difflib.get_close_matches(name, commands(), n=1)
    raise UserError(f"unknown command {name}; " + (f"did you mean {near[0]}?" if near else "see --help"))


if __name__ == "__main__":
    sys.exit(main())
