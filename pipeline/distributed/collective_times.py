"""How long this rank waits in collectives, on the host and on the device, without waiting for either.

All ranks leave a collective together. So a rank that arrives late waits less than the others: its own work is the time
of a step minus the time in collectives. No clock of another host is needed.

On a GPU an event is recorded before a collective and one after it, in the stream that waits for it. The events are read
later, when the device has passed them.
"""

import time
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

_LAG = 2
"""Steps after which the events of a step are read; DeepSpeed waits for the device in every step."""


class Event(Protocol):
    """A torch.cuda.Event, or one of another accelerator."""

    def record(self) -> None:
        """Marks the present place in the current stream."""
        ...

    def query(self) -> bool:
        """Whether the device has passed the event."""
        ...

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this event to `end`."""
        ...


class StepTimes(NamedTuple):
    """Times of a step on this rank, in seconds.

    Attributes:
        work: of the rank's own work, outside of collectives.
        whole: of the whole step.
    """

    work: float
    whole: float


class _Window(NamedTuple):
    whole: float
    host: float
    events: list[tuple[Event, Event]]
    is_usual: bool


class CollectiveTimes:
    """Adds up the time in collectives.

    Args:
        make_event: makes an event on the accelerator; None without one.
        clock: seconds.
    """

    def __init__(
        self, make_event: Callable[[], Event] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._make_event, self._clock = make_event, clock
        self._begun: dict[int, Event] = {}
        self._windows: deque[_Window] = deque()
        self._begin()

    def entered(self, on_device: bool) -> Event | None:
        """Called before a collective; returns what `left` or `is_waited_for` needs."""
        if not on_device or self._make_event is None:
            return None
        event = self._make_event()
        event.record()
        return event

    def spent(self, seconds: float) -> None:
        """Adds time that the host spent in a collective."""
        self._host += seconds

    def started(self, work: Any, event: Event | None) -> None:
        """Remembers the event before a collective until `work` is waited for."""
        if event is not None:
            self._begun[id(work)] = event

    def left(self, work: Any) -> None:
        """Called when the stream waits for `work`."""
        if (begin := self._begun.pop(id(work), None)) is not None and self._make_event is not None:
            end = self._make_event()
            end.record()
            self._events.append((begin, end))

    def leave_out(self) -> None:
        """Leaves out the step in progress, because it has an evaluation or a save."""
        self._is_usual = False

    def end_step(self) -> StepTimes | None:
        """Ends a step and begins the next one.

        Returns:
            The times on a GPU of an earlier step, else of this one. None if they are not known.
        """
        self._windows.append(_Window(self._clock() - self._since, self._host, self._events, self._is_usual))
        self._begin()
        if len(self._windows) <= (_LAG if self._make_event is not None else 0):
            return None
        window = self._windows.popleft()
        if not window.is_usual or not all(begin.query() and end.query() for begin, end in window.events):
            return None
        device = sum(begin.elapsed_time(end) for begin, end in window.events) / 1000
        return StepTimes(max(0.0, window.whole - window.host - device), window.whole)

    def _begin(self) -> None:
        self._since, self._host, self._is_usual = self._clock(), 0.0, True
        self._events: list[tuple[Event, Event]] = []
        self._begun.clear()


@cache
def of_this_process() -> CollectiveTimes:
    """The times of this process."""
    import torch

    if not torch.cuda.is_available():
        return CollectiveTimes()

    def make_event() -> Event:
        event: Event = torch.cuda.Event(enable_timing=True)
        return event

    return CollectiveTimes(make_event)
