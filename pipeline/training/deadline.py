"""Ends a run within --max-hours: the learning-rate schedule, the last evaluation and the last save included.

The time of a run is the wall-clock time of all its starts. The time between two starts does not count, and neither does
what a start that was killed took after its last checkpoint. After a rollback the steps go back and the time does not.
"""

MARGIN = 1.25
"""Measured times are multiplied by this factor and reserved."""

SLOWEST_SAVE = 100e6
"""Assumed speed of a save in bytes a second, until one has been measured."""


class Deadline:
    """Progress of a run, from 0 to 1: of the steps or, under a time limit, of the hours if these are further.

    The hours of training are the limit minus a reserve. The reserve is 1.25 times the longest step, evaluation, save
    and export so far. Step, evaluation and save count twice: once for the end of the run, once for what may still
    happen before the clock is read again. A step counts once more, because the clock is read before the end of the
    step before (`pipeline.training.agreement`). An export is assumed to take as long as a save, and counts once. Each
    start and each rollback makes a new deadline, which measures anew.

    Args:
        steps: of the whole run.
        hours: the limit; None for no limit.
        saved_bytes: of one checkpoint.
    """

    def __init__(self, steps: int, hours: float | None, saved_bytes: float) -> None:
        self._total = steps
        self._limit = None if hours is None else 3600.0 * hours
        self._longest = {"save": saved_bytes / SLOWEST_SAVE, "evaluation": 0.0, "step": 0.0}
        self._progress = 0.0

    def took(self, what: str, seconds: float) -> None:
        """Records the duration of one "save", "evaluation" or "step"."""
        self._longest[what] = max(self._longest[what], seconds)

    @property
    def reserve(self) -> float:
        """Seconds reserved for what comes after the last step has begun."""
        return MARGIN * (2 * sum(self._longest.values()) + self._longest["save"] + self._longest["step"])

    def progress(self, step: int, seconds: float) -> float:
        """The progress, 0 to 1, after `step` steps and `seconds` of the run. It never decreases.

        At 1 the next step is the last.
        """
        progress = step / self._total
        if self._limit is not None:
            left = self._limit - self.reserve
            progress = max(progress, seconds / left if left > 0 else 1.0)
        self._progress = min(1.0, max(self._progress, progress))
        return self._progress


def schedule_step(progress: float, step: int, steps: int) -> int:
    """The step of the learning-rate schedule to use at `step`: a later one if time will end the run early."""
    return min(max(step, int(progress * steps)), steps - 1)
