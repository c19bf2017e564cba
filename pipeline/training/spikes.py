"""Finds a spike: a loss that rises far above the recent ones and stays there for some steps.

Each step is compared with the usual steps before it. Its deviation is the distance from their median, in units of their
median absolute deviation times 1.4826, which is the standard deviation of normal noise. Deviations add up to evidence,
as in a CUSUM test (Page, Biometrika 41, 1954): each step adds its deviation, up to a limit, less what noise may have.
One hard batch gives too little evidence, however hard it is. The gradient norm, on a logarithmic scale, adds to the
evidence of a loss that has risen. Alone it adds nothing: it also jumps when a model begins to learn something new.

The detector knows only the numbers that it is given, so that it decides the same on all ranks and after a resume.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from common.files.json_files import Count, Finite

WINDOW = 128
"""Usual steps that a step is compared with."""
MIN_STEPS = 64
"""Usual steps that are needed before a step is judged."""
ALLOWED = 4.0
"""The deviation that noise may have. A step with less is a usual one."""
MAX_DEVIATION = 16.0
"""The most that the loss of one step counts, and twice the most that its gradient norm counts."""
ALARM = 48.0
"""Evidence of a spike: at least 3 steps, or 12 steps whose loss alone is 8 deviations too high."""
RAISED = 2.0
"""The deviation of the loss from which on the gradient norm counts."""
LEAST_SCALE = 0.01
"""The deviation of a very smooth loss, as a part of it. Less than 4 % above the median is no spike."""
LEAST_NORM_SCALE = 0.1
"""The same of the logarithm of the gradient norm."""


class Spike(NamedTuple):
    """A spike that was found.

    Attributes:
        first_step, last_step: from the first sign to the alarm, both included; the first step of a run is 1.
        loss, usual_loss: the highest one in these steps, and the median before; None if no loss was finite.
        grad_norm, usual_grad_norm: likewise; None if they are not known.
    """

    first_step: int
    last_step: int
    loss: float | None
    usual_loss: float
    grad_norm: float | None
    usual_grad_norm: float | None

    def __str__(self) -> str:
        norms = ""
        if self.grad_norm is not None and self.usual_grad_norm is not None:
            norms = f", and the gradient norm from {self.usual_grad_norm:.3g} to {self.grad_norm:.3g}"
        loss = "no finite number" if self.loss is None else f"{self.loss:.4g}"
        return (
            f"the loss has risen from {self.usual_loss:.4g} to {loss} in steps {self.first_step:,} to "
            f"{self.last_step:,}{norms}"
        )


@dataclass
class SpikeState:
    """Looks for spikes in the steps of a run, one after the other. A checkpoint holds it.

    After a spike it begins anew: what comes then is compared with the steps after the spike.

    Attributes:
        losses: of the last usual steps, at most `WINDOW`.
        log_norms: the logarithms of their gradient norms, without those that are not finite or 0.
        evidence: of a spike, so far.
        first_step: the step with which the evidence began; None without evidence.
        worst_loss: the highest finite loss since then.
        worst_norm: likewise, of the gradient.
    """

    losses: list[Finite] = field(default_factory=list)
    log_norms: list[Finite] = field(default_factory=list)
    evidence: Finite = 0.0
    first_step: Count | None = None
    worst_loss: Finite | None = None
    worst_norm: Finite | None = None

    def add(self, step: int, loss: float, grad_norm: float) -> Spike | None:
        """Adds a step. Returns the spike of which this step is the last evidence, or None.

        Args:
            step: its number, from 1.
            loss: the mean over the global batch.
            grad_norm: before clipping; anything that is not finite and above 0 is not known.
        """
        log_norm = math.log(grad_norm) if math.isfinite(grad_norm) and grad_norm > 0 else None
        if len(self.losses) >= MIN_STEPS:
            deviation = self._deviation(loss, log_norm)
            self.evidence = max(0.0, self.evidence + deviation - ALLOWED)
            if self.evidence:
                self.first_step = self.first_step or step
                self.worst_loss = _worse(self.worst_loss, loss)
                self.worst_norm = _worse(self.worst_norm, grad_norm)
            else:
                self.first_step = self.worst_loss = self.worst_norm = None
            if self.evidence >= ALARM:
                return self._end_spike(step)
            if deviation >= ALLOWED:
                return None
        if math.isfinite(loss):
            self.losses = [*self.losses, loss][-WINDOW:]
            if log_norm is not None:
                self.log_norms = [*self.log_norms, log_norm][-WINDOW:]
        return None

    def first_doubtful(self, step: int) -> int:
        """The first step of any spike that may still be found once `step` steps are known."""
        return self.first_step or step + 1

    def _deviation(self, loss: float, log_norm: float | None) -> float:
        if not math.isfinite(loss):
            return MAX_DEVIATION
        deviation = _deviation(loss, self.losses, LEAST_SCALE * abs(statistics.median(self.losses)))
        of_norm = 0.0
        if deviation >= RAISED and log_norm is not None and len(self.log_norms) >= MIN_STEPS:
            of_norm = _deviation(log_norm, self.log_norms, LEAST_NORM_SCALE)
        return min(deviation, MAX_DEVIATION) + min(of_norm, MAX_DEVIATION / 2)

    def _end_spike(self, step: int) -> Spike:
        """The spike whose last evidence is `step`. Forgets everything."""
        assert self.first_step is not None
        usual_norm = math.exp(statistics.median(self.log_norms)) if self.log_norms else None
        usual_loss = statistics.median(self.losses)
        spike = Spike(self.first_step, step, self.worst_loss, usual_loss, self.worst_norm, usual_norm)
        self.__init__()  # type: ignore[misc]
        return spike


def _deviation(value: float, usual: Sequence[float], least_scale: float) -> float:
    """How many robust standard deviations `value` is above the median of `usual`; 0 if it is below."""
    median = statistics.median(usual)
    scale = 1.4826 * statistics.median(abs(other - median) for other in usual)
    return max(0.0, value - median) / max(scale, least_scale, 1e-12)


def _worse(worst: float | None, value: float) -> float | None:
    return max(worst or -math.inf, value) if math.isfinite(value) else worst
