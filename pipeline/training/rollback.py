"""Goes back to a checkpoint before a spike, and records which batches the run skips.

The record is RUN/rollbacks.json. Which batch a step trains on follows from it and the number of the step alone
(`pipeline.data.sampler.batch_of_step`), on any number of ranks. A rollback consists of these parts:

    the newest complete checkpoint before the spike becomes the latest -> later ones are deleted, newest first
    -> the records of later steps leave metrics.jsonl -> rollbacks.json is replaced -> all ranks load the checkpoint

A kill before rollbacks.json is replaced loses nothing: the same command trains up to the spike once more, and finds it
again. A kill after that resumes from the checkpoint, with the record.

The hours of --max-hours do not go back, so with that flag the learning rate of a step may be a lower one the second
time (`pipeline.training.callbacks.early_end`).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from common.errors import UserError
from common.files import atomic
from common.files.json_files import Count, Finite, Positive, read_as
from common.text import quantity
from pipeline.checkpoint import retention
from pipeline.data.sampler import Ranges, batch_of_step
from pipeline.distributed.control import ControlGroup
from pipeline.training.callback import TrainingFailed
from pipeline.training.metrics_log import drop_after
from pipeline.training.spikes import Spike

ROLLBACKS = "rollbacks.json"
MARGIN = 8
"""Batches before the first sign of a spike that are skipped as well: an update shows one step later at the
earliest."""


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """One rollback of a run.

    Attributes:
        passed_over: the batches that are not trained on, as the first one and the one after the last; the first batch
            of the data is 0.
        first_step, last_step, loss, usual_loss, grad_norm, usual_grad_norm: of the `Spike`.
    """

    passed_over: tuple[Count, Count]
    first_step: Positive
    last_step: Positive
    loss: Finite | None
    usual_loss: Finite
    grad_norm: Finite | None
    usual_grad_norm: Finite | None


@dataclass(frozen=True)
class _Record:
    rollbacks: list[Rollback]


def read(run: Path) -> list[Rollback]:
    """The rollbacks of the run in the directory `run`, in their order. Raises UserError for a damaged record."""
    path, remedy = run / ROLLBACKS, "restore it"
    if not path.exists():
        return []
    rollbacks = read_as(path, _Record, remedy).rollbacks
    for number, rollback in enumerate(rollbacks):
        first, end = rollback.passed_over
        if first >= end:
            raise UserError(f"{path}: rollbacks.{number}.passed_over: {first} is not below {end}; {remedy}")
    return rollbacks


def skipped_batches(rollbacks: Sequence[Rollback]) -> Ranges:
    """The batches that are skipped, as disjoint ranges in ascending order."""
    ranges: list[tuple[int, int]] = []
    for first, end in sorted(rollback.passed_over for rollback in rollbacks):
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(end, ranges[-1][1])
        else:
            ranges.append((first, end))
    return tuple(ranges)


def batches_to_come(rollbacks: Sequence[Rollback], step: int, steps: int) -> Iterator[int]:
    """The number of the global batch of each step after `step` steps, up to the last of `steps`."""
    skipped = skipped_batches(rollbacks)
    return (batch_of_step(number, skipped) for number in range(step, steps))


def describe(rollbacks: Sequence[Rollback]) -> str:
    """How many rollbacks there were and how many batches they skipped, for people."""
    batches = sum(end - first for first, end in skipped_batches(rollbacks))
    return f"{quantity(len(rollbacks), 'rollback')}, {batches:,} batches skipped"


def first_step_undone(first_sign: int) -> int:
    """The number of steps before the first one that a rollback undoes.

    Args:
        first_sign: the step that shows the first sign of the spike, from 1.
    """
    return max(0, first_sign - 1 - MARGIN)


def check(run: Path, rollbacks: Sequence[Rollback], step: int, made: int) -> None:
    """Raises UserError unless a checkpoint of `step` steps, which `made` rollbacks precede, agrees with the record."""
    undone = any(step > first_step_undone(rollback.first_step) for rollback in rollbacks[made:])
    if made > len(rollbacks) or undone:
        raise UserError(
            f"the checkpoint of step {step:,} was made after {quantity(made, 'rollback')}, and {run / ROLLBACKS} has "
            f"others; restore {ROLLBACKS}, or move the checkpoint away"
        )


def roll_back(run: Path, earlier: Sequence[Rollback], spike: Spike, control: ControlGroup) -> Rollback:
    """Makes a checkpoint before the spike the latest one, and records the rollback. Collective.

    Raises:
        TrainingFailed: no complete checkpoint is old enough, or a file cannot be written; on all ranks.
    """
    made = _rollback_of(spike, earlier)

    def record() -> None:
        if (found := retention.go_back(run / "checkpoints", first_step_undone(spike.first_step))) is None:
            raise UserError("no complete checkpoint is old enough")
        drop_after(run, found)
        content = {"rollbacks": [asdict(one) for one in [*earlier, made]]}
        atomic.write_text(run / ROLLBACKS, json.dumps(content, indent=1) + "\n")

    control.all_or_raise(
        record if control.rank == 0 else lambda: None,
        (OSError, UserError),
        lambda problem: TrainingFailed(f"{spike}; the run cannot go back: {problem}"),
    )
    return made


def _rollback_of(spike: Spike, earlier: Sequence[Rollback]) -> Rollback:
    ranges = skipped_batches(earlier)
    first = batch_of_step(first_step_undone(spike.first_step), ranges)
    end = batch_of_step(spike.last_step - 1, ranges) + 1
    return Rollback(passed_over=(first, end), **spike._asdict())
