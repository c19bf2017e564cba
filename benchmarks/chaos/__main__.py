"""Makes random faults in one training over three hosts, and compares its end with that of an undisturbed run.

    python -m benchmarks.chaos --faults 100 --seed 1 --out DIR

A tiny model is trained by three ranks, one on each of three hosts, which are namespaces of this machine. torchrun's
elastic agent starts the ranks again. The faults come one after another; `benchmarks.chaos.faults` has their kinds. In
the end an undisturbed run on one rank, which passes over the same batches from the beginning, must have the same
batches in the same order, the same metrics and the same weights up to rounding. Everything is made below DIR. Writes
DIR/chaos.json and DIR/chaos.md. It needs root. The exit status is 1 if the run did not survive, or if something
differs.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.chaos import page
from benchmarks.chaos.faults import KINDS, Fault, plan
from benchmarks.chaos.suffering import NotSurvived, suffer
from benchmarks.chaos.training import DEFAULT, SHORT, Places, Training, command, environment, make_data
from benchmarks.shared import report
from benchmarks.shared.namespaces import REPOSITORY, what_is_missing
from common.command_line import Parser, entry_point, positive
from common.errors import UserError


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.chaos", description="Random faults in one training over three hosts.")
    p.add_argument("--faults", type=positive, default=100, metavar="N", help="(100)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of the random faults (0)")
    p.add_argument("--kinds", nargs="+", choices=KINDS, metavar="KIND", help="the first kinds (random ones)")
    p.add_argument("--default-timeouts", action="store_true", help="those that users have (short ones)")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of everything that is made")
    return p


def steps_of(places: Places, faults: Sequence[Fault]) -> int:
    """The steps of the run. It must not end before the last fault."""
    return len(faults) * places.limits.steps + 20


def disturb(places: Places, faults: Sequence[Fault], seed: int) -> list[dict[str, Any]]:
    """Makes all faults, lets the run finish, and returns what each fault cost.

    Raises NotSurvived.
    """
    costs = []
    training = Training(places, command(places, places.run, steps_of(places, faults)))
    try:
        for number, fault in enumerate(faults):
            cost = dataclasses.asdict(suffer(training, fault, number, seed)) | {"load": os.getloadavg()[0]}
            costs.append(cost)
            print(page.line(number + 1, cost), flush=True)
        while not (places.run / "done").exists():
            time.sleep(0.2)
    finally:
        training.end()
    return costs


def train_undisturbed(places: Places, steps: int) -> None:
    """Makes the other run, on one rank."""
    words = [sys.executable, "-m", *command(places, places.undisturbed, steps)]
    variables = environment() | {"GLOO_SOCKET_IFNAME": "lo"}
    with (places.logs / "undisturbed.log").open("ab") as log:
        if subprocess.run(words, cwd=REPOSITORY, env=variables, stdout=log, stderr=log, check=False).returncode:
            raise UserError(f"the undisturbed run has failed; see {log.name}")


def measure(places: Places, args: argparse.Namespace) -> int:
    """Makes the data and both runs, writes the page, and returns the exit status."""
    if places.root.exists() and any(places.root.iterdir()):
        raise UserError(f"--out {places.root} has files; remove them, or give another directory")
    make_data(places)
    faults = plan(args.faults, args.seed, args.kinds)
    try:
        costs = disturb(places, faults, args.seed)
    except NotSurvived as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    train_undisturbed(places, steps_of(places, faults))
    loads = sorted(cost["load"] for cost in costs)
    device = report.describe(torch.device("cpu"))
    result = {
        "format": "chaos 4",
        "date": device["date"],
        "machine": f"{report.processor()}, {report.cores()} cores; torch {device['versions']['torch']}",
        "load": f"load {loads[0]:.0f} to {loads[-1]:.0f}, other programs included",
        "limits": places.limits._asdict(),
        "arguments": {"faults": args.faults, "seed": args.seed, "kinds": args.kinds},
        "end": page.compare(places.run, places.undisturbed, places.first, steps_of(places, faults)),
        "costs": costs,
    }
    report.write(places.root / "chaos", result, page.markdown(result))
    print(page.markdown(result))
    return 1 if result["end"]["differences"] else 0


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    args = parser().parse_all(argv)
    if reason := what_is_missing():
        raise UserError(f"three hosts cannot be made here: {reason}")
    return measure(Places(args.out.resolve(), DEFAULT if args.default_timeouts else SHORT), args)


if __name__ == "__main__":
    sys.exit(main())
