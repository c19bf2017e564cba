"""95 % intervals of a proportion, and of any metric of some examples."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]
Z = 1.959964  # the 97.5 % quantile of the normal distribution: 95 % of it lie within Z standard deviations of the mean
RESAMPLES = 2000


def bootstrap_interval(statistic: Callable[[NDArray[np.int64]], float], examples: int, seed: int = 0) -> Interval:
    """Percentiles of `statistic` over samples of N `examples`, drawn with replacement; it takes their numbers (N,)."""
    rng = np.random.default_rng(seed)
    values = [statistic(rng.integers(0, examples, examples)) for _ in range(RESAMPLES)]
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def wilson_interval(successes: float, trials: float) -> Interval:
    """The 95 % interval of a proportion (Wilson, JASA 22, 1927), valid near 0 and 1 and for few trials."""
    if trials == 0:
        return 0.0, 1.0
    p = successes / trials
    centre = (p + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    half = Z / (1 + Z * Z / trials) * math.sqrt(p * (1 - p) / trials + Z * Z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)  # rounding must not print "-0.0"
