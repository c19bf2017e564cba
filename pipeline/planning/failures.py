"""What lost nodes cost, and how often to save because of them.

A longer interval between two saves costs more steps when a node is lost; a shorter one costs more saves. The best
interval is Daly's ("A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22, 2006). Its
first term is Young's (CACM 17, 1974): the root of 2 x seconds of a save x mean time between failures.
"""

import math
from dataclasses import dataclass

from common.text import format_duration

ASSUMED_BYTES_PER_SECOND = 1e9
"""Speed at which all ranks together write, sync and hash a checkpoint, if `--save-seconds` is not given."""
ASSUMED_RESTART_SECONDS = 180.0
"""From the loss of a node to the next new step, if `--restart-seconds` is not given."""


@dataclass(frozen=True)
class Failures:
    """What is known about failures.

    Attributes:
        node_hours: mean time between failures of one node.
        save_seconds: of one save; None to compute it from the checkpoint's size.
        restart_seconds: to notice the loss, meet again, load the checkpoint and warm up.
    """

    node_hours: float
    save_seconds: float | None = None
    restart_seconds: float = ASSUMED_RESTART_SECONDS


def best_interval(save_seconds: float, failure_seconds: float) -> float:
    """Seconds of training between two saves that cost the least time in all (Daly, equation 37).

    Args:
        save_seconds: of one save, above 0.
        failure_seconds: mean time between failures, above 0.
    """
    if save_seconds >= 2 * failure_seconds:
        return failure_seconds
    ratio = save_seconds / (2 * failure_seconds)
    return math.sqrt(2 * save_seconds * failure_seconds) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def describe_failures(
    failures: Failures, nodes: int, step_seconds: float, steps: int, checkpoint_bytes: float
) -> list[str]:
    """What lost nodes cost with the best interval between two saves, for people, one fact a line.

    Args:
        nodes: of the job.
        step_seconds: of one step.
        steps: of the run.
        checkpoint_bytes: of one checkpoint.
    """
    job_seconds = 3600.0 * failures.node_hours / nodes  # mean time between failures of any node
    save = failures.save_seconds or checkpoint_bytes / ASSUMED_BYTES_PER_SECOND
    interval_steps = max(1, round(min(steps, best_interval(save, job_seconds) / step_seconds)))
    interval = interval_steps * step_seconds
    lost, restart = interval / 2, failures.restart_seconds  # a failure costs half an interval on average
    how = "assumed: 1 GB/s" if failures.save_seconds is None else "given"
    return [
        f"a node fails every {failures.node_hours:,.0f} hours: one of {nodes} every {job_seconds / 3600:,.1f} hours, "
        f"{steps * step_seconds / job_seconds:,.2f} times in this run",
        f"save every {interval_steps:,} steps, {format_duration(interval)} (Young/Daly): a save takes {save:,.1f} s "
        f"({how}), all saves {100 * save / (interval + save):.2f} % of the time",
        f"a lost node costs {format_duration(lost)} of steps on average and {format_duration(restart)} of restart and "
        f"warm-up, {100 * (lost + restart) / job_seconds:.2f} % of the time in all",
    ]
