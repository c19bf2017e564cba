"""Runs commands that may take weeks: those that are done are left out, some at a time, and a signal reaches all."""

import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pipeline.runs import EXIT_STOPPED
from pipeline.tasks.experiments import Command, Stage


def is_done(command: Command) -> bool:
    """Whether it need not be run again."""
    return command.done is not None and command.done.exists()


@dataclass
class Runner:
    """Runs stages of commands, each command's output going to a file of its own.

    Attributes:
        logs: directory of these files.
        at_a_time: commands of one stage that run beside each other.
        children: the processes that are running.
        stopped: set once a signal has come or a command has failed: nothing is started any more.
    """

    logs: Path
    at_a_time: int = 1
    children: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)
    signalled: bool = False

    def run(self, stages: Sequence[Stage]) -> int:
        """Runs what is not done yet, and says so.

        Returns:
            0; the exit status of the first command that failed; 75 after a signal.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        total = sum(map(len, stages))
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            number = 0
            with ThreadPoolExecutor(self.at_a_time) as pool:
                for stage in stages:
                    started = [
                        pool.submit(self._run_one, command, f"[{number + place}/{total}] {command.name}")
                        for place, command in enumerate(stage, start=1)
                    ]
                    number += len(stage)
                    statuses = [future.result() for future in started]
                    if self.signalled:
                        print("stopped; the same command goes on from there", flush=True)
                        return EXIT_STOPPED
                    if failed := next(filter(None, statuses), 0):
                        return failed
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)
        return 0

    def _run_one(self, command: Command, title: str) -> int:
        if self.stopped.is_set():
            return 0
        if is_done(command):
            print(f"{title}: done before", flush=True)
            return 0
        log = self.logs / f"{command.name.replace(' ', '-')}.log"
        began = time.monotonic()
        with log.open("wb") as file:
            child = subprocess.Popen(command.argv, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            self.children.add(child)
            if self.stopped.is_set():
                child.terminate()
            status = child.wait()
            self.children.discard(child)
        if status:
            self.stopped.set()
            if not self.signalled:
                last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
                print(f"{title}: failed with status {status}: {shlex.join(command.argv)}", *last, sep="\n", flush=True)
                print(f"all it said: {log}", flush=True)
            return status if status > 0 else 128 - status
        print(f"{title}: {time.monotonic() - began:.0f} s", flush=True)
        return 0

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Lets the children save and end. They have sessions of their own: a Ctrl-C would not reach them otherwise."""
        self.signalled = True
        self.stopped.set()
        for child in list(self.children):
            child.terminate()
