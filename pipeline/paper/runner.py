"""Runs commands that may take weeks: several at a time, without those that are done; a signal reaches all of them."""

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

from common.files import locks, owned, places
from pipeline.distributed.exits import EXIT_STOPPED
from pipeline.distributed.launcher import keep_output_open
from pipeline.paper.experiments import Command, Stage


def _say(text: str) -> None:
    """Prints lines in one write, so that those of other threads come before or after them."""
    print(f"{text}\n", end="", flush=True)


@dataclass
class Runner:
    """Runs stages of commands. The output of each command goes to a file of its own.

    Attributes:
        logs: directory of these files.
        at_a_time: the number of commands of one stage that run at the same time.
        children: the running processes.
        stopped: set after a signal or a failed command; then no further command starts.
        signalled: whether a signal has come.
    """

    logs: Path
    at_a_time: int = 1
    children: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)
    signalled: bool = False

    def run(self, stages: Sequence[Stage]) -> int:
        """Runs the commands that are not done, and prints a line for each.

        Raises:
            UserError: `logs` holds files that no earlier run wrote, or another process runs commands there.
        Returns:
            0 if all are done; the exit status of the first command that failed; 75 after a signal.
        """
        places.check_directory(self.logs)
        owned.take_workplace(self.logs, "pipeline.reproduce")
        with locks.holding(self.logs / locks.LOCK, self.logs.parent):
            return self._run(stages)

    def _run(self, stages: Sequence[Stage]) -> int:
        total = sum(map(len, stages))
        # The end of a terminal is a signal as well, unless nohup has turned it off.
        hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT, *hangup)}
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
                        keep_output_open()
                        print("stopped; the same command resumes it", flush=True)
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
        if command.is_done:
            _say(f"{title}: done before")
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
                failed = f"{title}: failed with status {status}: {shlex.join(command.argv)}"
                _say("\n".join([failed, *last, f"its whole output: {log}"]))
            return status if status > 0 else 128 - status
        _say(f"{title}: {time.monotonic() - began:.0f} s")
        return 0

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Asks the children to save and end. Ctrl-C does not reach them, since they have sessions of their own."""
        self.signalled = True
        self.stopped.set()
        for child in list(self.children):
            child.terminate()
