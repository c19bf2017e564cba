"""The time limit of a run (--max-hours): schedule, last evaluation and last save are within the hours.

The time of a run is the wall-clock time of all its starts. The time between two starts does not count, and neither does
what a start that was killed took after its last checkpoint.
"""

from pipeline.checkpoint.checkpoint_manifest import BYTES_A_PARAMETER
from pipeline.engine import step as engine_step
from pipeline.engine.engine_state import Engine

MARGIN = 1.25
"""Measured times are multiplied by this factor and reserved."""
SLOWEST_SAVE = 100e6
"""Assumed speed of a save in bytes a second, until one has been measured."""


def expected_save_seconds(engine: Engine) -> float:
    """How long a save may take, until one has been measured."""
    return BYTES_A_PARAMETER * engine_step.parameter_count(engine) / SLOWEST_SAVE


class Deadline:
    """How far a run is by its hours, so that the schedule and the last step follow the clock.

    The hours of training are the limit minus a reserve. The reserve is 1.25 times the longest step, evaluation and
    save so far, and an export. Step, evaluation and save count twice: once for the end of the run, once for what may
    still happen before the clock is read again. A step counts once more, because the clock is read before the end of
    the step before (`pipeline.training.agreement`). An export is assumed to take as long as a save, and counts once.
    Each start makes a new deadline, which measures anew.

    Args:
        hours: the limit; None for none, and then the progress stays 0.
        steps: of the run.
        save_seconds: what a save is expected to take.
    """

    def __init__(self, hours: float | None, steps: int, save_seconds: float) -> None:
        self._limit, self._steps = None if hours is None else 3600.0 * hours, steps
        self._longest = {"save": save_seconds, "evaluation": 0.0, "step": 0.0}
        self._progress = 0.0

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self._limit is not None

    @property
    def reserve(self) -> float:
        """Seconds reserved for what comes after the last step has begun."""
        return MARGIN * (2 * sum(self._longest.values()) + self._longest["save"] + self._longest["step"])

    def learn(self, work: str, seconds: float) -> None:
        """Learns how long a "step", an "evaluation" or a "save" has taken."""
        self._longest[work] = max(self._longest[work], seconds)

    def progress(self, step: int, seconds: float) -> float:
        """The progress after `step` steps and `seconds` of the run: of the steps or of the hours, if these are further.

        From 0 to 1; it never decreases. At 1 the next step is the last.
        """
        if self._limit is None:
            return 0.0
        left = self._limit - self.reserve
        by_time = seconds / left if left > 0 else 1.0
        self._progress = min(1.0, max(self._progress, step / self._steps, by_time))
        return self._progress
