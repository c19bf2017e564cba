"""The long tier: so many cases, the faults as they are found, and figures at the end."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import inputs
from tests.fuzz.cases import find, try_many, try_valid, warm_up


def main() -> int:
    """Runs the cases. Returns 1 if one of them has a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="(1000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case, to go on (0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other cases (0)")
    parser.add_argument("--command", action="append", default=[], metavar="NAME", help="only this command (all)")
    parser.add_argument("--change", default="", metavar="NAME", help="only this change, such as fifo (any)")
    args = parser.parse_args()
    began, faults, slowest, largest = time.monotonic(), 0, 0.0, 0
    statuses = {0: 0, 2: 0}
    commands = find(args.command)
    with tempfile.TemporaryDirectory() as place:
        valid, scratch = Path(place, "valid"), Path(place, "scratch")
        scratch.mkdir()
        inputs.make_in_child(valid)
        for command in commands:
            if fault := try_valid(command, valid, scratch).fault:
                print(f"FAULT {command.name} on valid inputs\n{fault}\n", flush=True)
            warm_up(scratch)
        numbers = range(args.first, args.first + args.cases)
        for case, verdict in try_many(commands, valid, scratch, numbers, args.seed, args.change):
            slowest, largest = max(slowest, verdict.seconds), max(largest, verdict.memory)
            statuses[verdict.status] = statuses.get(verdict.status, 0) + 1
            if verdict.fault:
                faults += 1
                print(f"FAULT {case}\n{verdict.fault}\n", flush=True)
    print(
        f"{args.cases} cases of {len(commands)} commands from number {args.first} in {time.monotonic() - began:.0f} s: "
        f"{faults} faults; {statuses[0]} ended with status 0, {statuses[2]} with status 2; the slowest took "
        f"{slowest:.1f} s of processor time, the largest {largest / 2**30:.2f} GiB"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
