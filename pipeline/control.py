"""What the ranks agree on between steps: a few numbers, summed on their own group of sockets.

A gloo group beside the accelerator's: agreeing never makes the host wait for the device, and it works the same
without one.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist


class Control:
    """Sums small vectors over all ranks, on the host. Every rank must call `sum` and `barrier` in the same order."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._group = dist.new_group(backend="gloo") if self.world_size > 1 else None

    def sum(self, values: Sequence[float]) -> list[float]:
        """The element-wise sums over the ranks, in float64."""
        if self._group is None:
            return [float(value) for value in values]
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self._group)
        return total.tolist()

    def first_problem(self, problem: str) -> str:
        """The problem of the lowest rank that has one, on all ranks; "" where none has."""
        if self._group is None:
            return problem
        problems: list[str | None] = [None] * self.world_size
        dist.all_gather_object(problems, problem, group=self._group)
        return next((found for found in problems if found), "")

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks, by rank, on rank 0; None on the others. For what pickle writes, among our own."""
        if self._group is None:
            return [value]
        values: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        dist.gather_object(value, values, group=self._group)
        return values

    def share(self, value: Any) -> Any:
        """Rank 0's value, on all ranks."""
        values = [value]
        if self._group is not None:
            dist.broadcast_object_list(values, group_src=0, group=self._group)
        return values[0]

    def barrier(self) -> None:
        """Returns when every rank has come here."""
        if self._group is not None:
            dist.barrier(group=self._group)


class StopSignals:
    """Notes SIGTERM, SIGINT and SIGUSR1 (Slurm's warning) instead of dying, so that the step can end and be saved.

    A second SIGINT means what it always does: whoever presses Ctrl-C twice does not want to wait.
    """

    NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def __init__(self) -> None:
        self.received: int | None = None
        self._interrupted = False  # kept apart: after one Ctrl-C the launcher sends SIGTERM as well
        for number in self.NUMBERS:
            signal.signal(number, self._note)

    def flags(self) -> list[float]:
        """1 for the signal of `NUMBERS` that has come, 0 for the others: what `Control.sum` tells all ranks."""
        return [float(number == self.received) for number in self.NUMBERS]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        self.received = number


def run_and_leave(main: Callable[[], int]) -> NoReturn:
    """Runs a rank's `main` and ends the process with its status, whatever threads are still alive.

    The sockets and threads of process groups outlive the interpreter's own end: where a peer has left a moment
    earlier, their destructors may abort the process, and a scheduler would read -6 where 2 or 75 was meant. Nothing
    is left to be destroyed: what a rank writes is closed before `main` returns.
    """
    try:
        status = main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
