"""Tries every command: on valid inputs, on read-only and full disks, twice at once, and after so many changes.

Prints the faults as they are found, and figures after every 100 changes and at the end. SIGINT and SIGTERM end it
after the figures; `--first` goes on.
"""

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import changes, inputs, runner
from tests.fuzz.commands import COMMANDS
from tests.fuzz.runner import Verdict

ROUNDS = 5
"""A slow command is in one round of so many."""
TOGETHER = ("extract goes on", "vocab", "shards", "export", "ensemble", "reproduce goes on", "pretrain")
"""Commands that are started twice at the same moment."""


def verdicts(args: argparse.Namespace, valid: Path, scratch: Path) -> Iterator[tuple[int | None, Verdict]]:
    """Makes the inputs and runs all cases: each change with its number. Slow commands are in some rounds only."""
    inputs.make_in_child(valid)
    commands = [command for name, command in COMMANDS.items() if not args.command or name in args.command]
    for command in commands:
        yield None, runner.try_valid(command, valid, scratch)
        if changes.can_mount():
            yield None, runner.try_read_only(command, valid, scratch)
            if command.slow:
                yield None, runner.try_case(command, valid, scratch, 7, "full")  # a page is free
        if command.name in TOGETHER:
            yield None, runner.try_two(command, valid, scratch)
    quick = [command for command in commands if not command.slow]
    turns = [command for number in range(ROUNDS) for command in (quick if number and quick else commands)]
    for number in range(args.first, args.first + args.cases):
        command = turns[number % len(turns)]
        yield number, runner.try_case(command, valid, scratch, args.seed * 1_000_000 + number, args.change)


def main() -> int:
    """Runs the cases. Returns 1 if one of them has a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="number of changes (1000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first change, to go on (0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other changes (0)")
    parser.add_argument("--command", action="append", default=[], metavar="NAME", help="only this command (all)")
    parser.add_argument("--change", default="", metavar="NAME", help="only this change, such as fifo (any)")
    args = parser.parse_args()
    began, found, done = time.monotonic(), [], args.first
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # also in the background of a shell, which ignores SIGINT
    with tempfile.TemporaryDirectory() as place, contextlib.suppress(KeyboardInterrupt):
        valid, scratch = Path(place, "valid"), Path(place, "scratch")
        scratch.mkdir()
        for number, verdict in verdicts(args, valid, scratch):
            found.append(verdict)
            if verdict.fault:
                print(f"FAULT {verdict.case}\n{verdict.fault}\n", flush=True)
            if number is not None:
                done = number + 1
                if done % 100 == 0:
                    print(_figures(found, began, done), flush=True)
    print(_figures(found, began, done), flush=True)
    return 1 if any(verdict.fault for verdict in found) else 0


def _figures(found: list[Verdict], began: float, done: int) -> str:
    statuses = [verdict.status for verdict in found]
    return (
        f"{len(found)} cases in {time.monotonic() - began:.0f} s: {sum(bool(v.fault) for v in found)} faults; "
        f"{statuses.count(0)} ended with status 0, {statuses.count(2)} with status 2; the slowest took "
        f"{max((v.seconds for v in found), default=0):.1f} s of processor time, the largest "
        f"{max((v.memory for v in found), default=0) / 2**30:.2f} GiB; go on with --first {done}"
    )


if __name__ == "__main__":
    sys.exit(main())
