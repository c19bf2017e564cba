"""Tries every command: on valid inputs, where nothing can be written, twice at once, and after so many changes.

Prints the faults as they are found, and figures at the end.
"""

import argparse
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


def verdicts(args: argparse.Namespace, valid: Path, scratch: Path) -> Iterator[Verdict]:
    """Makes the inputs and runs all cases. Slow commands are in some rounds of changes only."""
    inputs.make_in_child(valid)
    commands = [command for name, command in COMMANDS.items() if not args.command or name in args.command]
    for command in commands:
        yield runner.try_valid(command, valid, scratch)
        if changes.can_mount():
            yield runner.try_read_only(command, valid, scratch)
        if command.name in TOGETHER:
            yield runner.try_two(command, valid, scratch)
    quick = [command for command in commands if not command.slow]
    turns = [command for number in range(ROUNDS) for command in (quick if number and quick else commands)]
    for number in range(args.first, args.first + args.cases):
        command = turns[number % len(turns)]
        yield runner.try_case(command, valid, scratch, args.seed * 1_000_000 + number, args.change)


def main() -> int:
    """Runs the cases. Returns 1 if one of them has a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="number of changes (1000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first change, to go on (0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other changes (0)")
    parser.add_argument("--command", action="append", default=[], metavar="NAME", help="only this command (all)")
    parser.add_argument("--change", default="", metavar="NAME", help="only this change, such as fifo (any)")
    args = parser.parse_args()
    began, found = time.monotonic(), []
    with tempfile.TemporaryDirectory() as place:
        valid, scratch = Path(place, "valid"), Path(place, "scratch")
        scratch.mkdir()
        for verdict in verdicts(args, valid, scratch):
            found.append(verdict)
            if verdict.fault:
                print(f"FAULT {verdict.case}\n{verdict.fault}\n", flush=True)
    statuses = [verdict.status for verdict in found]
    faults = sum(bool(verdict.fault) for verdict in found)
    print(
        f"{len(found)} cases in {time.monotonic() - began:.0f} s: {faults} faults; {statuses.count(0)} ended with "
        f"status 0, {statuses.count(2)} with status 2; the slowest took {max(v.seconds for v in found):.1f} s of "
        f"processor time, the largest {max(v.memory for v in found) / 2**30:.2f} GiB"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
