"""Forked processes with an environment and output files of their own. They start faster than a launcher's."""

import contextlib
import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.pipeline.workers.preloaded"])
_ONE_THREAD = threading.Lock()
"""Commands are started and waited for in several threads. The start of one asks for the status of those that have
ended; if another thread asks at the same time, one of the two gets 255."""


class Forked:
    """A process that calls `work(*arguments)` with an `environment` of its own; its output goes into files."""

    def __init__(
        self, files: Path, work: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None
    ) -> None:
        self.environment = dict(environment or {})
        self._files = [files.with_suffix(suffix) for suffix in (".out", ".err")]
        for file in self._files:
            file.touch()
        self.process = _CONTEXT.Process(target=_call, args=(self._files, work, arguments, self.environment))
        self.process.start()

    @property
    def stdout(self) -> str:
        """Its output so far."""
        return self._files[0].read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        """Its output so far."""
        return self._files[1].read_text(encoding="utf-8")

    def has_said(self, text: str) -> None:
        """Waits until it has written `text` to stdout."""
        deadline = time.monotonic() + 1500
        while text not in self.stdout:
            # It may write the text and end between two looks, so what it wrote is read again after its end.
            assert self.process.is_alive() or text in self.stdout, self.stderr
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.01)

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        with _ONE_THREAD:
            return self.process.exitcode

    def wait(self, timeout: float = 1500) -> int:
        """Its exit status, once it has ended, after `timeout` seconds at most; negative where a signal ended it."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            assert time.monotonic() < deadline, "the process has not ended"
            time.sleep(0.01)
        return status

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.process.pid or 0, number)

    def kill(self) -> None:
        """Kills it, unless it has ended."""
        self.process.kill()


class ForkedRank(Forked):
    """A rank of `python -m module arguments`, with the methods of subprocess.Popen that benchmarks.shared.job calls."""

    def __init__(self, files: Path, module: str, arguments: list[str], environment: Mapping[str, str]) -> None:
        super().__init__(files, be_module, module, arguments, Path.cwd(), dict(environment))


class ForkedCommand(ForkedRank):
    """`python -m module arguments`, with the methods of subprocess.Popen that `benchmarks.shared.commands` calls."""

    def __init__(self, words: Sequence[str], *, stdout: IO[bytes], stderr: int, start_new_session: bool) -> None:
        assert words[:2] == (sys.executable, "-m"), words
        assert (stderr, start_new_session) == (subprocess.STDOUT, True)
        self._files = [Path(stdout.name)] * 2
        work = (be_module, (words[2], list(words[3:]), Path.cwd(), dict(os.environ)), {})
        self.process = _CONTEXT.Process(target=_call, args=(self._files, *work))
        with _ONE_THREAD:
            self.process.start()

    def terminate(self) -> None:
        """Asks it to end, unless it has ended."""
        self.send_signal(signal.SIGTERM)


class ForkedCommands:
    """Stands in for the module subprocess in `benchmarks.shared.commands`, for tests of many commands."""

    Popen = ForkedCommand
    STDOUT = subprocess.STDOUT


def lock_for_ever() -> None:
    """Locks a mutex twice in compiled code, which no signal ends."""
    mutex, libc = ctypes.create_string_buffer(128), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def _call(
    files: list[Path], work: Callable[..., Any], arguments: tuple[Any, ...], environment: Mapping[str, str]
) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
        # Buffered as in a new process, whose stderr is complete line by line even if os._exit ends it.
        stream = os.fdopen(number, "w", buffering=1 if number == 2 else -1, closefd=False)
        setattr(sys, ("stdout", "stderr")[number - 1], stream)
    os.environ.update(environment)
    work(*arguments)


def run_module(
    module: str, arguments: list[str], directory: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module arguments` in a forked process, which has imported torch and DeepSpeed already."""
    with tempfile.TemporaryDirectory() as scratch:
        process = Forked(Path(scratch, "run"), be_module, module, arguments, directory, dict(environment))
        process.process.join(timeout)
        if process.process.exitcode is None:
            process.process.kill()
            raise subprocess.TimeoutExpired([module, *arguments], timeout, process.stdout, process.stderr)
        status = process.process.exitcode
        return subprocess.CompletedProcess([module, *arguments], status, process.stdout, process.stderr)


def be_module(module: str, arguments: list[str], directory: Path, environment: Mapping[str, str]) -> None:
    """Becomes `python -m module arguments` in a directory and with an environment."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
