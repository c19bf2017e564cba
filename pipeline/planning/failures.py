"""What lost nodes cost, and how often to save because of them.

A longer interval between two saves costs more steps when a node is lost; a shorter one costs more saves. The best
interval is Daly's ("A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22, 2006). Its
first term is Young's (CACM 17, 1974): the root of 2 x seconds of a save x mean time between failures.
"""

import math
from dataclasses import dataclass

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


@dataclass(frozen=True)
class FailurePlan:
    """The costs of lost nodes with the best interval between two saves.

    Attributes:
        job_hours: mean time between failures of any node of the job.
        save_seconds: of one save.
        interval_seconds: of training between two saves.
        interval_steps: the same in steps, for `--save-interval`.
        lost_seconds: of steps that a failure costs on average: half an interval.
        restart_seconds: that it costs besides.
        failures: expected number in the run.
    """

    job_hours: float
    save_seconds: float
    interval_seconds: float
    interval_steps: int
    lost_seconds: float
    restart_seconds: float
    failures: float

    @property
    def saving_share(self) -> float:
        """The part of the time that saves take."""
        return self.save_seconds / (self.interval_seconds + self.save_seconds)

    @property
    def lost_share(self) -> float:
        """The part of the time that repeated steps and restarts take, to first order."""
        return (self.lost_seconds + self.restart_seconds) / (3600.0 * self.job_hours)


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


def plan_failures(
    failures: Failures, nodes: int, step_seconds: float, steps: int, checkpoint_bytes: float
) -> FailurePlan:
    """The plan of a run of `steps` steps on `nodes` nodes, whose checkpoints have `checkpoint_bytes` bytes each."""
    job_hours = failures.node_hours / nodes
    save_seconds = failures.save_seconds or checkpoint_bytes / ASSUMED_BYTES_PER_SECOND
    wanted = best_interval(save_seconds, 3600.0 * job_hours)
    interval_steps = max(1, round(min(steps, wanted / step_seconds)))
    interval = interval_steps * step_seconds
    return FailurePlan(
        job_hours=job_hours,
        save_seconds=save_seconds,
        interval_seconds=interval,
        interval_steps=interval_steps,
        lost_seconds=interval / 2,
        restart_seconds=failures.restart_seconds,
        failures=steps * step_seconds / (3600.0 * job_hours),
    )


def describe(plan: FailurePlan, failures: Failures, nodes: int) -> list[str]:
    """The plan for people, one fact a line."""
    how = "assumed: 1 GB/s" if failures.save_seconds is None else "given"
    return [
        f"a node fails every {failures.node_hours:,.0f} hours: one of {nodes} every {plan.job_hours:,.1f} hours, "
        f"{plan.failures:,.2f} times in this run",
        f"save every {plan.interval_steps:,} steps, {_duration(plan.interval_seconds)} (Young/Daly): a save takes "
        f"{plan.save_seconds:,.1f} s ({how}), all saves {100 * plan.saving_share:.2f} % of the time",
        f"a lost node costs {_duration(plan.lost_seconds)} of steps on average and {plan.restart_seconds:,.0f} s of "
        f"restart and warm-up, {100 * plan.lost_share:.2f} % of the time in all",
    ]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"
