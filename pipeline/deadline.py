"""When a run with --max-hours has to end, so that the schedule, the last evaluation and the last save fit in.

Time is the wall-clock of all starts of a run together, without what lies between them.
"""

MARGIN = 1.25
"""What comes after the last step is given this much more than it has taken so far."""

SLOWEST_SAVE = 100e6
"""Bytes a second that a save is assumed to write until one has been measured."""


class Deadline:
    """How much of a run is done: of its steps or, with a limit on time, of its hours, whichever is more.

    The hours are those until the last step. What a step, an evaluation over all rows and a save have taken at most so
    far is set aside twice, for the end and for what may lie between two looks at the clock, and an export, taken to
    be as long as a save, once.

    Args:
        steps: of the whole run.
        hours: the limit; None for none.
        saved_bytes: of one checkpoint.
    """

    def __init__(self, steps: int, hours: float | None, saved_bytes: float) -> None:
        self._total = steps
        self._limit = None if hours is None else 3600.0 * hours
        self._longest = {"save": saved_bytes / SLOWEST_SAVE, "evaluation": 0.0, "step": 0.0}
        self._share = 0.0

    def took(self, what: str, seconds: float) -> None:
        """Notes how long one "save", "evaluation" or "step" was."""
        self._longest[what] = max(self._longest[what], seconds)

    @property
    def reserve(self) -> float:
        """Seconds set aside for what comes after the last step begins."""
        return MARGIN * (2 * sum(self._longest.values()) + self._longest["save"])

    def share(self, step: int, seconds: float) -> float:
        """The share, 0 to 1, that lies behind after `step` steps and `seconds` of the run; it never shrinks.

        At 1 the step to come is the last.
        """
        share = step / self._total
        if self._limit is not None:
            left = self._limit - self.reserve
            share = max(share, seconds / left if left > 0 else 1.0)
        self._share = min(1.0, max(self._share, share))
        return self._share


def schedule_step(share: float, step: int, steps: int) -> int:
    """The step of the learning rate's schedule at which a run stands: one that time will end walks it faster."""
    return min(max(step, int(share * steps)), steps - 1)
