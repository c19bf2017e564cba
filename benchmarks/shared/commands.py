"""Runs commands that may take hours: several at a time, without those that are done. Checks that packages are there."""

import importlib.util
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared import report
from common.errors import UserError


@dataclass(frozen=True)
class Command:
    """One command: its name for people, its words, and a file that exists once it has ended."""

    name: str
    argv: tuple[str, ...]
    done: Path
    may_fail: bool = False
    """Whether a failure (status 1) is a result as well: a file beside `done` keeps it, and the others go on."""

    @property
    def failed(self) -> Path:
        """The file that says that it has failed."""
        return self.done.with_name("failed")

    @property
    def has_ended(self) -> bool:
        """Whether it need not run again."""
        return self.done.exists() or (self.may_fail and self.failed.exists())


def check_packages(*names: str) -> None:
    """Raises UserError if one of these packages of developers is not installed."""
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise UserError(f"{', '.join(missing)}: not installed here; pip install -r requirements-dev.txt")


Stage = tuple[Command, ...]  # commands that may run at the same time


def run(stages: Sequence[Stage], out: Path) -> None:
    """Runs the commands that are not done, one on each core. Each stage waits for the one before it.

    Prints a line for each command; its output is a file in OUT/logs. SIGTERM and Ctrl-C end the running
    commands, which save first.

    Raises SystemExit: with the status of a command that failed, or with 128 and the number of the signal.
    """
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    children: set[subprocess.Popen[bytes]] = set()
    status = 0
    ends = threading.Event()

    def stop(number: int, frame: object) -> None:
        nonlocal status
        status = 128 + number
        print("stopping; the same command goes on where it was", flush=True)
        ends.set()
        for child in list(children):
            child.terminate()

    def run_one(command: Command) -> None:
        nonlocal status
        if command.has_ended or ends.is_set():
            print(f"{command.name}: {'not started' if ends.is_set() else 'done before'}", flush=True)
            return
        log, began = logs / f"{command.name.replace(' ', '-')}.log", time.monotonic()
        with log.open("wb") as file:
            # A session of its own: Ctrl-C comes from here only.
            child = subprocess.Popen(command.argv, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            children.add(child)
            if ends.is_set():
                child.terminate()
            failed = child.wait()
            children.discard(child)
        if failed == 1 and command.may_fail and not ends.is_set():
            command.failed.write_text(f"{shlex.join(command.argv)}\n", encoding="utf-8")
            print(f"{command.name}: failed, which counts as the worst result", flush=True)
        elif failed and not ends.is_set():
            ends.set()
            status = failed if failed > 0 else 128 - failed
            end = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
            failure = f"{command.name}: failed with status {status}: {shlex.join(command.argv)}"
            print("\n".join([failure, *end, f"its whole output: {log}"]), flush=True)
        elif not failed:
            print(f"{command.name}: {time.monotonic() - began:.0f} s", flush=True)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with ThreadPoolExecutor(report.cores()) as pool:
            for stage in stages:
                list(pool.map(run_one, stage))
                if ends.is_set():
                    raise SystemExit(status)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
