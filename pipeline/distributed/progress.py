"""What a rank is doing, how long that may take, and which ranks hang.

A rank notes each phase and micro-step, and how long it may take until its next note, because it alone knows its steps.
`pipeline.distributed.watch` reads the notes in a thread, and compares those of all ranks.
"""

import contextlib
import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

Phase = Literal[
    "start", "data", "agreement", "forward", "backward", "optimizer", "logging", "evaluation", "scoring", "save",
    "compilation", "end",
]  # fmt: skip

STEPS_FACTOR = 10
"""A rank may be silent for this many times a median step, and in a save for this many times the longest save."""
LONG_SECONDS = 1800.0  # limit of a compilation, of the first steps of a start, of scoring, and of what follows training
_MEDIAN_OF = 50


class Report(NamedTuple):
    """What a rank says of itself; phase, step and micro_step as in `Progress`."""

    phase: str
    step: int
    micro_step: int
    collectives: int  # that the rank has entered
    limit: float  # seconds until its next note after which it hangs; infinite if it is not watched
    idle: float = 0.0  # seconds since its last note


class Progress:
    """The progress of this process.

    Attributes:
        notes: how many have been made.
        step: the step in progress, from 1; 0 before the first one.
        micro_step: of this step, from 1; 0 between micro-steps.
        hang_timeout: seconds without a note after which a rank hangs, at least.
    """

    def __init__(self) -> None:
        self.notes = 0
        self.hang_timeout = 0.0
        self.start_run()

    def start_run(self) -> None:
        """Enters the phase "start" and forgets what an earlier run of this process took."""
        self._steps: deque[float] = deque(maxlen=_MEDIAN_OF)
        self._is_first_step = True
        self._longest_save = 0.0
        self.compilations = 0  # that have begun
        self.step = 0
        self.enter("start")

    def enter(self, phase: Phase, micro_step: int = 0) -> None:
        """Notes the beginning of a phase."""
        self.phase, self.micro_step, self.limit = phase, micro_step, self._limit_of(phase)
        self.compilations += phase == "compilation"
        self.beat()

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Notes a phase inside of another one."""
        outer, micro_step = self.phase, self.micro_step
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(outer, micro_step)

    def beat(self) -> None:
        """Notes that the phase goes on."""
        self.notes += 1

    def took_step(self, seconds: float) -> None:
        """Learns from the duration of a step how long a rank may be silent."""
        if self._is_first_step:
            self._is_first_step = False  # it compiles and warms up
        else:
            self._steps.append(seconds)

    @property
    def has_made_a_step(self) -> bool:
        """Whether this process has made a step since its start. So all ranks have, in its collectives."""
        return not self._is_first_step

    def took_save(self, seconds: float) -> None:
        """Learns from the duration of a save, or from an estimate before the first one, how long one may take."""
        self._longest_save = max(self._longest_save, seconds)

    def report(self, idle: float) -> Report:
        """The report of this process, which made its last note `idle` seconds ago."""
        return Report(self.phase, self.step, self.micro_step, count_collectives(), self.limit, idle)

    def _limit_of(self, phase: Phase) -> float:
        if phase == "start":
            return math.inf
        if phase in ("compilation", "scoring", "end") or not self._steps:
            return max(self.hang_timeout, LONG_SECONDS)
        usual = max(statistics.median(self._steps), self._longest_save if phase == "save" else 0.0)
        return max(self.hang_timeout, STEPS_FACTOR * usual)


@cache
def get_progress() -> Progress:
    """The progress of this process. There is one for each process, as there is one main thread."""
    return Progress()


def count_collectives() -> int:
    """How many collectives this process has entered in all groups. All ranks enter the same ones in the same order.

    torch counts them, and has no public way to read the count (tests/pipeline/test_private_names.py).
    """
    with contextlib.suppress(RuntimeError):  # a group is being made or destroyed
        from torch.distributed import distributed_c10d

        groups: list[Any] = list(distributed_c10d._world.pg_map)
        return sum(group._get_sequence_number_for_group() for group in groups)
    return 0


def find_hanging(reports: Mapping[int, Report]) -> list[int]:
    """The ranks that hang, by the reports of all ranks; none if all is well.

    The ranks that have entered the fewest collectives are those for which the others wait. Only they can hang: the
    others wait rightly, however long. Such a rank hangs once its last note is older than its limit.
    """
    fewest = min(report.collectives for report in reports.values())
    awaited = {rank: report for rank, report in sorted(reports.items()) if report.collectives == fewest}
    if all(report.idle <= report.limit for report in awaited.values()):
        return []
    # The limits of the ranks differ a little, as their median steps do.
    return [rank for rank, report in awaited.items() if report.idle > report.limit / 2]


def describe_hanging(ranks: Sequence[int], reports: Mapping[int, Report], hosts: Sequence[str]) -> str:
    """One line: where the first of these ranks hangs, and how many more do. `hosts` has the host name of each rank."""
    report = reports[ranks[0]]
    micro_step = f", micro-step {report.micro_step}" if report.micro_step else ""
    parts = [
        f"rank {ranks[0]} on host {hosts[ranks[0]]} hangs: no progress for {report.idle:.0f} s in phase "
        f"{report.phase} of step {report.step}{micro_step}"
    ]
    if waiting := sum(other.collectives > report.collectives for other in reports.values()):
        parts.append(f"{waiting} other rank{'s wait' if waiting > 1 else ' waits'} for it")
    if len(ranks) > 1:
        parts.append(f"ranks that hang as well: {', '.join(map(str, ranks[1:9]))}{', ...' if len(ranks) > 9 else ''}")
    return "; ".join(parts)


@cache
def note_compilations() -> None:
    """From now on, every compilation of torch.compile is a phase: each may take minutes, also in mid-run."""
    from torch._dynamo.callback import on_compile_end, on_compile_start

    phases = contextlib.ExitStack()
    on_compile_start(lambda _: phases.enter_context(get_progress().during("compilation")))
    on_compile_end(lambda _: phases.close())
