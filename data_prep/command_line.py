"""Command lines that say what is wrong in one line, for the jobs here and for the entry points of pipeline/."""

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from data_prep.errors import UserError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError, with the flag that was probably meant, instead of printing its usage.

    Flags are not abbreviated: a script must not change its meaning when a flag is added.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """Raises UserError with argparse's message."""
        raise UserError(f"{message}; {self._see_help()}")

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parses `arguments`. Raises UserError for a mistake; an unknown flag is named with the nearest known one."""
        known = [flag for action in self._actions for flag in action.option_strings]
        # Looked for first: a flag that was mistyped may be the very one that is missing.
        for argument in arguments:
            if argument.startswith("--") and argument.partition("=")[0] not in known:
                self._unknown(argument, known)
        parsed, unknown = self.parse_known_args(arguments)
        if unknown:
            self._unknown(unknown[0], known)
        return parsed

    def _unknown(self, argument: str, known: Sequence[str]) -> NoReturn:
        name = argument.partition("=")[0]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        raise UserError(f"unknown argument {name}; " + (f"did you mean {near[0]}?" if near else self._see_help()))

    def _see_help(self) -> str:
        return f"see `{self.prog} --help`"
