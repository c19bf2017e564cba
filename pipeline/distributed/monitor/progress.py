"""What a rank is doing, in memory that another process can read.

A rank writes a record when it enters a phase, a micro-step or a collective. Its watcher reads the record and needs no
thread of the rank. The rank also writes how long it may take until the next record, because it alone knows its steps.
"""

import contextlib
import math
import mmap
import os
import statistics
import struct
from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

Phase = Literal[
    "start", "data", "agreement", "forward", "backward", "optimizer", "logging", "evaluation", "scoring", "save",
    "rollback", "compilation", "end",
]  # fmt: skip

STEPS_FACTOR = 10
"""A rank may be silent for this many times a median step, and in a save for this many times the longest save."""
LONG_SECONDS = 1800.0
"""Limit of a compilation, a rollback, of the first steps of a start, of scoring, and of what follows training."""
_MEDIAN_OF = 50
_RECORD = struct.Struct("<q16sqqdq")
_COLLECTIVES = struct.Struct("<q")  # behind the record: another thread writes it


class Record(NamedTuple):
    """What a rank was doing when it last wrote its record.

    Attributes:
        number: of the record.
        phase: see `Phase`.
        step, micro_step: of the run; both count from 1.
        collectives: that the rank had entered when it last counted them.
        limit: seconds until the next record after which the rank hangs; infinite if it is not watched.
    """

    number: int
    phase: str
    step: int
    micro_step: int
    collectives: int
    limit: float


def read(memory: mmap.mmap) -> Record | None:
    """The record in `memory`; None if it is being written."""
    first, phase, step, micro_step, limit, last = _RECORD.unpack_from(memory)
    if first != last:
        return None
    (collectives,) = _COLLECTIVES.unpack_from(memory, _RECORD.size)
    return Record(first, phase.rstrip(b"\0").decode(), step, micro_step, collectives, limit)


class Progress:
    """The progress of this process.

    Attributes:
        descriptor: of the memory, for the watcher.
        step: the step in progress, from 1; 0 before the first one.
        hang_timeout: seconds without a record after which a rank hangs, at least.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("progress")
        os.ftruncate(self.descriptor, _RECORD.size + _COLLECTIVES.size)
        self._memory = mmap.mmap(self.descriptor, _RECORD.size + _COLLECTIVES.size)
        self._count = self._micro_step = 0
        self._phase: Phase = "start"
        self.step = 0
        self.hang_timeout = 0.0
        self.start_run()

    @property
    def phase(self) -> Phase:
        """What the process is doing."""
        return self._phase

    def start_run(self) -> None:
        """Enters the phase "start" and forgets what an earlier run of this process took."""
        self._steps: deque[float] = deque(maxlen=_MEDIAN_OF)
        self._is_first_step = True
        self._longest_save = 0.0
        self.step = 0
        self.enter("start")

    def enter(self, phase: Phase, micro_step: int = 0) -> None:
        """Records the beginning of a phase."""
        self._phase, self._micro_step = phase, micro_step
        self._limit = self._limit_of(phase)
        self._write()

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Records a phase inside of another one."""
        outer, micro_step = self._phase, self._micro_step
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(outer, micro_step)

    def beat(self) -> None:
        """Records that the phase goes on."""
        self._write()

    def count_collectives(self) -> None:
        """Records how many collectives this process has entered. All ranks enter the same ones in the same order.

        A thread calls it now and then. While a rank holds Python's lock the count stays behind, and the ranks that wait
        for it are ahead all the same.
        """
        with contextlib.suppress(RuntimeError):  # a group is being made or destroyed
            from torch.distributed import distributed_c10d

            groups: list[Any] = list(distributed_c10d._world.pg_map)
            count = sum(group._get_sequence_number_for_group() for group in groups)
            _COLLECTIVES.pack_into(self._memory, _RECORD.size, count)

    def took_step(self, seconds: float) -> None:
        """Learns from the duration of a step how long a rank may be silent."""
        if self._is_first_step:
            self._is_first_step = False  # it compiles and warms up
        else:
            self._steps.append(seconds)

    def took_save(self, seconds: float) -> None:
        """Learns from the duration of a save, or from an estimate before the first one, how long one may take."""
        self._longest_save = max(self._longest_save, seconds)

    def _limit_of(self, phase: Phase) -> float:
        if phase == "start":
            return math.inf
        if phase in ("rollback", "compilation", "scoring", "end") or not self._steps:
            return max(self.hang_timeout, LONG_SECONDS)
        usual = max(statistics.median(self._steps), self._longest_save if phase == "save" else 0.0)
        return max(self.hang_timeout, STEPS_FACTOR * usual)

    def _write(self) -> None:
        self._count += 1
        _RECORD.pack_into(
            self._memory, 0, self._count, self._phase.encode(), self.step, self._micro_step, self._limit, self._count,
        )  # fmt: skip


@cache
def get_progress() -> Progress:
    """The progress of this process. There is one for each process, as there is one main thread."""
    return Progress()


class Compilations:
    """Enters the phase "compilation" at the beginning of each compilation, and the earlier phase at its end."""

    def __init__(self) -> None:
        self._phases = contextlib.ExitStack()

    def begin(self, arguments: Any) -> None:
        """The callback of torch at the beginning."""
        self._phases.enter_context(get_progress().during("compilation"))

    def end(self, arguments: Any) -> None:
        """The callback of torch at the end."""
        self._phases.close()


@contextlib.contextmanager
def compilations_recorded() -> Iterator[None]:
    """Records every compilation of torch.compile inside the block: each may take minutes, also in mid-run."""
    from torch._dynamo.callback import callback_handler

    compilations = Compilations()
    callback_handler.register_start_callback(compilations.begin)
    callback_handler.register_end_callback(compilations.end)
    try:
        yield
    finally:
        callback_handler.remove_start_callback(compilations.begin)
        callback_handler.remove_end_callback(compilations.end)
