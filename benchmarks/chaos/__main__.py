"""Makes random faults in one training over three hosts, and compares its end with that of an undisturbed run.

    python -m benchmarks.chaos --faults 100 --seed 1 --out DIR

A tiny model is trained by three ranks, one on each of three hosts, which are namespaces of this machine. torchrun's
elastic agent starts the ranks again. The faults come one after another; `benchmarks.chaos.faults` has their kinds. In
the end an undisturbed run on one rank, which passes over the same batches from the beginning, must have the same
batches in the same order, the same metrics and the same weights up to rounding. Everything is made below DIR. A
benchmark that was killed goes on with the same command. Writes DIR/chaos.json and DIR/chaos.md. It needs root. The exit
status is 1 if the run did not survive, or if something differs.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.chaos import page
from benchmarks.chaos.faults import KINDS, free_disk, plan, repair_shards
from benchmarks.chaos.rank import flip_of
from benchmarks.chaos.suffering import SPACING, NotSurvived, suffer
from benchmarks.chaos.training import (
    DISK_BYTES,
    HOSTS,
    Places,
    Training,
    command,
    environment,
    make_data,
)
from benchmarks.shared import report
from benchmarks.shared.namespaces import REPOSITORY, what_is_missing
from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import atomic
from pipeline.checkpoint.retention import find_latest
from pipeline.training.divergence import rollback
from pipeline.training.flags import positive


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.chaos", description="Random faults in one training over three hosts.")
    p.add_argument("--faults", type=positive, default=100, metavar="N", help="(100)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of the random faults (0)")
    p.add_argument("--kinds", nargs="+", choices=KINDS, metavar="KIND", help="the first kinds (random ones)")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of everything that is made")
    return p


class State:
    """What a benchmark that goes on needs: its arguments, its processes, the hosts away, and the costs so far."""

    def __init__(self, places: Places, arguments: dict[str, Any]) -> None:
        self._path = places.root / "state.json"
        self.content: dict[str, Any] = {"arguments": arguments, "processes": [], "disk": None, "away": [], "costs": []}
        if self._path.exists():
            self.content = json.loads(self._path.read_text(encoding="utf-8"))
            if self.content["arguments"] != arguments:
                raise UserError(f"{places.root} was begun with other arguments: {self.content['arguments']}")

    def write(self, **changes: Any) -> None:
        """Changes some of the content, and writes it."""
        self.content |= changes
        atomic.write_text(self._path, json.dumps(self.content, indent=1) + "\n")


def identity(pid: int) -> list[float]:
    """A process, so that another one that gets its number later is not taken for it."""
    return [pid, psutil.Process(pid).create_time()]


def is_alive(process: list[float] | None) -> bool:
    """Whether the process of `identity` runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process is not None and psutil.Process(int(process[0])).create_time() == process[1]
    return False


def mount_disk(places: Places, state: State) -> int:
    """A process in whose mount namespace the run's disk is. It outlives this one, so that the run is not lost.

    Raises UserError if the process has ended, and the run with it.
    """
    holder = state.content["disk"]
    if holder is None:
        places.disk.mkdir()
        script = f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "$1" && exec sleep infinity'
        words = ["unshare", "--mount", "sh", "-c", script, "sh", str(places.disk)]
        nothing = subprocess.DEVNULL
        started = subprocess.Popen(words, start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)
        while not os.path.ismount(f"/proc/{started.pid}/root{places.disk}"):
            if started.poll() is not None:
                raise UserError(f"no disk can be mounted at {places.disk}")
            time.sleep(0.02)
        holder = identity(started.pid)
        state.write(disk=holder)
    elif not is_alive(holder):
        raise UserError(f"the disk of the run has gone with its process {int(holder[0])}; remove {places.root}")
    return int(holder[0])


def disturb(places: Places, state: State, args: Any) -> None:
    """Makes the faults that have not been made yet, and lets the run finish."""
    faults = plan(args.faults, args.seed, args.kinds)
    for left in state.content["processes"]:
        if is_alive(left):
            os.kill(int(left[0]), signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    training = Training(places, command(places, places.run, steps_of(args.faults)), set(state.content["away"]))
    try:
        for name in HOSTS:
            flip_of(places.requests, name).unlink(missing_ok=True)
        free_disk(training)
        repair_shards(training)
        for number in range(len(state.content["costs"]), len(faults)):
            state.write(processes=list(map(identity, training.processes())))
            cost = dataclasses.asdict(suffer(training, faults[number], number, args.seed))
            cost["load"] = os.getloadavg()[0]
            state.write(costs=[*state.content["costs"], cost], away=sorted(training.away))
            print(page.line(number + 1, cost), flush=True)
        while not (places.run / "done").exists():
            time.sleep(0.2)
    finally:
        training.end()
    state.write(processes=[])


def result_of(places: Places, state: State) -> dict[str, Any]:
    """The result: what differs, and what each fault cost."""
    arguments, costs = state.content["arguments"], state.content["costs"]
    loads = sorted(cost["load"] for cost in costs)
    device = report.describe(torch.device("cpu"))
    return {
        "format": "chaos 1",
        "date": device["date"],
        "machine": f"{report.processor()}, {report.cores()} cores; torch {device['versions']['torch']}",
        "load": f"load {loads[0]:.0f} to {loads[-1]:.0f}, other programs included",
        **arguments,
        "end": page.compare(places.run, places.undisturbed, places.root / "first", steps_of(arguments["faults"])),
        "costs": costs,
    }


def steps_of(faults: int) -> int:
    """The steps of the run. It must not end before the last fault: some faults take more steps than others."""
    return faults * (SPACING + 4) + 100


def train_undisturbed(places: Places, faults: int) -> None:
    """Makes the other run, on one rank. Its record lists the rollbacks of the first one from the beginning."""
    record, run = places.run / rollback.ROLLBACKS, places.undisturbed
    words = [sys.executable, "-m", *command(places, run, steps_of(faults))]
    variables = environment() | {"GLOO_SOCKET_IFNAME": "lo"}
    log = (places.logs / "undisturbed.log").open("ab")
    if record.exists() and not (run / rollback.ROLLBACKS).exists():
        started = subprocess.Popen(words, cwd=REPOSITORY, env=variables, stdout=log, stderr=log)
        while find_latest(run / "checkpoints") is None and started.poll() is None:
            time.sleep(0.05)
        started.send_signal(signal.SIGUSR1)
        started.wait()
        shutil.copyfile(record, run / rollback.ROLLBACKS)
    if subprocess.run(words, cwd=REPOSITORY, env=variables, stdout=log, stderr=log, check=False).returncode:
        raise UserError(f"the undisturbed run has failed; see {log.name}")


def go_inside(places: Places, state: State, words: Sequence[str]) -> int:
    """Runs this command line where the run's disk is mounted, and returns the exit status."""
    if (places.root / "chaos.json").exists():
        raise UserError(f"{places.root} is finished: {places.root / 'chaos.md'} is its page")
    make_data(places)
    holder = mount_disk(places, state)
    inside = ["nsenter", f"--target={holder}", "--mount", f"--wd={REPOSITORY}"]
    here = [sys.executable, "-m", "benchmarks.chaos", *words]
    status = subprocess.run([*inside, *here], check=False).returncode
    if (places.root / "chaos.json").exists():
        os.kill(holder, signal.SIGKILL)
    return status


def work_inside(places: Places, state: State, args: Any) -> int:
    """Makes what has not been made yet, writes the page, and returns the exit status."""
    if len(state.content["costs"]) < args.faults or not (places.run / "done").exists():
        try:
            disturb(places, state, args)
        except NotSurvived as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    train_undisturbed(places, args.faults)
    result = result_of(places, state)
    shutil.copytree(places.run, places.root / "run", dirs_exist_ok=True)
    report.write(places.root / "chaos", result, page.markdown(result))
    print(page.markdown(result))
    return 1 if result["end"]["differences"] else 0


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    args = parser().parse_all(argv)
    if reason := what_is_missing():
        raise UserError(f"three hosts cannot be made here: {reason}")
    places = Places(args.out.resolve())
    places.root.mkdir(parents=True, exist_ok=True)
    state = State(places, {"faults": args.faults, "seed": args.seed, "kinds": args.kinds})
    if os.path.ismount(places.disk):
        return work_inside(places, state, args)
    return go_inside(places, state, argv)


if __name__ == "__main__":
    sys.exit(main())
