"""What a process gets from outside: numbers in variables of launchers, what GPUs there are, and Ctrl-C."""

import io
import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from common import PREFIX
from common.errors import UserError

CONSOLE_SCRIPT = "albert"  # the command that an installed wheel has
INTERRUPTED = "interrupted\n"  # what is printed for Ctrl-C if nothing catches the KeyboardInterrupt


def whole_number(name: str, low: int = 0, high: int = 2**31 - 1, default: int | None = None) -> int:
    """The number in an environment variable, or `default`. UserError: it is none from `low` to `high`, or missing."""
    text = os.environ.get(name)
    if text is None:
        if default is None:
            raise UserError(f"the environment variable {name} is not set; start the ranks by a launcher, or one alone")
        return default
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else -1
    if not low <= number <= high:
        fault = f"{text[:40]!r}, which is no whole number from {low} to {high}"
        raise UserError(f"the environment variable {name} is {fault}; unset it or correct it")
    return number


def launched_size() -> int:
    """The number of ranks that the launcher started; 1 without one. UserError: Slurm started several without MPI."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"):
        if name in os.environ:
            return whole_number(name, low=1)
    tasks = whole_number("SLURM_STEP_NUM_TASKS", low=1, default=1) if "SLURM_PROCID" in os.environ else 1
    if "PMIX_RANK" in os.environ:
        return max(2, tasks)  # PMIx has no variable for the number; any value above 1 will do
    if tasks > 1:
        fault = f"srun started {tasks} tasks without MPI, and each would do the whole job"
        raise UserError(f"{fault}; add --mpi=pmix (or pmi2) to srun")
    return 1


def launched_rank() -> int:
    """Returns this process's rank, from the launcher's environment variables; 0 without a launcher. Needs no MPI."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        if name in os.environ:
            return whole_number(name)
    return 0


def lines_of(*command: str, seconds: float = 20) -> list[str]:
    """The lines that a command prints; none if it is missing, fails or takes longer."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.splitlines() if result.returncode == 0 else []


def gpus_of_driver() -> list[str]:
    """The lines of `nvidia-smi -L`, one a GPU; none without a driver."""
    return [line for line in lines_of("nvidia-smi", "-L") if line.startswith("GPU ")]


def has_gpu_device() -> bool:
    """Whether the kernel shows a GPU, with or without nvidia-smi."""
    return os.path.exists("/dev/nvidia0")


def begin_command() -> None:
    """Prepares output and end of a process that runs a command of this project (`python -m pipeline.plan`, `albert`).

    Text that the encoding of the terminal lacks is escaped. Until `begin_work`, Ctrl-C ends the process at once: a
    KeyboardInterrupt during an import may be raised inside a destructor or a module's `except`, which prints it or
    drops it. After that it is raised as usual, so that work can be cleaned up, and ends the command with one line. A
    program that imports the packages keeps its own ways.
    """
    following = itertools.pairwise(sys.orig_argv)
    module = next((word for option, word in following if re.fullmatch("-[a-zA-Z]*m", option)), "")
    is_module = sys.argv[:1] == ["-m"] and f"{module}.".startswith((f"{PREFIX}data_prep.", f"{PREFIX}pipeline."))
    if not is_module and Path(sys.argv[0] or "-").name != CONSOLE_SCRIPT:
        return
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.excepthook = _report
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in a background job of a shell
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Opens on nothing what the caller has closed of stdin, stdout and stderr: the next file would take its number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # which takes the lowest free number
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115


def begin_work() -> None:
    """From here on, Ctrl-C raises KeyboardInterrupt, if `begin_command` has changed that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints `INTERRUPTED` for a KeyboardInterrupt, and any other error as Python does."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write(INTERRUPTED)
    else:
        sys.__excepthook__(kind, error, trace)
