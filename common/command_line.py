"""Command lines whose mistakes raise `UserError`, for the jobs of data_prep/ and the entry points of pipeline/."""

import argparse
import collections
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from common import __version__, environment
from common.errors import UserError
from common.files.places import explain
from common.text import did_you_mean

PATHS = re.compile("DIR|FILE|PATH|RUN|EXPORT|JSON")  # how the metavar of files and directories begins
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")

N = TypeVar("N", int, float)
MAX_NUMBER = 10**9  # the largest number of steps, GPUs or anything else that is counted. Larger ones are mistakes.


def bounded(read: Callable[[str], N], name: str, accepts: Callable[[N], bool], bounds: str) -> Callable[[str], N]:
    """A type for argparse, which calls it `name`: reads a number and refuses "X is not {bounds}"."""

    def convert(text: str) -> N:
        value = read(text)
        if not accepts(value):
            raise argparse.ArgumentTypeError(f"{text[:40]} is not {bounds}")
        return value

    convert.__name__ = name
    return convert


positive = bounded(int, "positive whole number", lambda n: 1 <= n <= MAX_NUMBER, f"at least 1 and at most {MAX_NUMBER}")
natural = bounded(int, "whole number", lambda n: 0 <= n < 2**63, "between 0 and 2**63 - 1")
below_one = bounded(float, "number", lambda x: 0 <= x < 1, "at least 0 and below 1")
above_zero = bounded(float, "number", lambda x: 0 < x <= MAX_NUMBER, f"above 0 and at most {MAX_NUMBER}")
hours = bounded(float, "number of hours", lambda h: 0 < h < math.inf, "a number of hours above 0")
price = bounded(float, "price", lambda p: 0 <= p < math.inf, "a price of at least 0")


def _tokens(text: str) -> int:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([kMB]?)", text)
    if match is None:
        raise ValueError(text)
    return round(float(match[1]) * {"": 1, "k": 10**3, "M": 10**6, "B": 10**9}[match[2]])


tokens = bounded(_tokens, "number of tokens (such as 10M)", lambda n: n >= 1, "at least 1")


def truth(text: str) -> bool:
    """Reads true or false."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is neither true nor false")
    return text.lower() == "true"


class HelpFormatter(argparse.HelpFormatter):
    """Wraps a description to the terminal, by paragraphs. Indented lines are commands, or entries of a list."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        text = re.sub(r"(?<!\n)\n(?![ \n])", " ", text.strip("\n"))
        return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    """A paragraph or an indented line; its further lines are indented more, behind a backslash in a command."""
    begin = re.match(r" *(?:\S+ {2,})?", line)[0]  # type: ignore[index]
    is_command = line.startswith(" ") and not begin.strip()
    further = " " * (len(begin) + 4 * is_command)
    parts = textwrap.wrap(line, width - 2 * is_command, subsequent_indent=further, break_on_hyphens=False)
    return (" \\\n" if is_command else "\n").join(parts)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError instead of printing its usage, and suggests the nearest flag.

    Flags cannot be abbreviated: a script must not change its meaning when a flag is added.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter, **options, "allow_abbrev": False})
        self.add_argument("--version", action="version", version=f"albert-pretraining {__version__}")

    def error(self, message: str) -> NoReturn:
        """Raises UserError with argparse's message."""
        raise UserError(f"{message}; see `{self.prog} --help`")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses as argparse does. The command's work begins here: from now on Ctrl-C raises KeyboardInterrupt."""
        words = sys.argv[1:] if args is None else list(args)
        self._check_paths(words)
        self._refuse_repeated(words)
        result = super().parse_known_args(words, namespace)
        environment.begin_work()
        return result

    def _refuse_repeated(self, words: Sequence[str]) -> None:
        """Refuses a flag of several values that is given twice: argparse would keep the last ones only."""
        times = collections.Counter(word.partition("=")[0] for word in words if word.startswith("--"))
        for flag, action in self._option_string_actions.items():
            if times[flag] > 1 and action.nargs == "+" and not isinstance(action, argparse._ExtendAction):
                raise UserError(f"{flag} is given {times[flag]} times; give all of its values after one {flag}")

    def _check_paths(self, words: Sequence[str]) -> None:
        """Refuses an empty path, which would be the current directory, and a URL, which would be a local name."""
        flag = ""
        for word in words:
            name, equals, value = word.partition("=") if word.startswith("--") else (flag, "=", word)
            flag = name
            action = self._option_string_actions.get(flag)
            is_path = action is None or PATHS.match(str(action.metavar)) is not None
            if equals and not value.strip() and is_path:
                which = f"of {flag}" if flag else f"after {self.prog}"
                raise UserError(f"the argument {which} is empty, as from an unset variable of the shell; give a value")
            if is_path and _URL.match(value) and self._subparsers is None:  # which check theirs
                fault = "URLs are not supported here, only local files and mounted file systems"
                raise UserError(f"{flag or 'the argument'} {value}: {fault}; copy what it names, and give the path")

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parses `arguments`. Raises UserError for a mistake; for an unknown flag it names the nearest known one."""
        known = [flag for action in self._actions for flag in action.option_strings]
        # Unknown flags come first: the flag that argparse finds missing may be the one that was mistyped.
        unknown = [word for word in arguments if word.startswith("--") and word.partition("=")[0] not in known]
        if not unknown:
            parsed, unknown = self.parse_known_args(arguments)
            if not unknown:
                return parsed
        name = unknown[0].partition("=")[0]
        raise UserError(f"unknown argument {name}; {did_you_mean(name, known, f'see `{self.prog} --help`')}")


def in_one_line(work: Callable[[], int | None], is_silent: bool = False) -> int:
    """Calls `work` and returns the exit status of the command. With `is_silent`, another rank prints the errors.

    A mistake of the user, and a file that cannot be read or written, is one line on stderr and status 2. If the program
    that reads the output (head, less) has closed it, the command ends with status 0.
    """
    try:
        try:
            return work() or 0
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Nothing may be written at exit into a pipe that its reader has closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, OSError) as error:
        message = explain(error)
        if message is None:
            raise
    if not is_silent:
        print(f"error: {message}", file=sys.stderr)
    return 2


def entry_point(main: Callable[[Sequence[str]], int | None]) -> Callable[..., int]:
    """Makes `main` take the words of the command line by default, and return the exit status (`in_one_line`)."""

    def run(argv: Sequence[str] | None = None) -> int:
        return in_one_line(lambda: main(sys.argv[1:] if argv is None else argv))

    return run
