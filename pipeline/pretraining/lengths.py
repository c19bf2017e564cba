"""The length of a run in steps and the batches it leaves out, both of which a later start may change by rules."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from pipeline.checkpoint import retention
from pipeline.data.sampler import batch_of_step
from pipeline.settings.run_settings import PretrainSettings
from pipeline.settings.settings_file import SETTINGS, read_settings

PAPER_BATCH, PAPER_STEPS = 4096, 125_000


@dataclass(frozen=True)
class EarlierStart:
    """A run that has begun: its directory, its settings.json, and the steps before its newest checkpoint."""

    output: Path
    settings: PretrainSettings
    steps_made: int


def find_earlier_start(output: Path) -> EarlierStart | None:
    """What is in `output`; None if no pre-training run has begun there. Raises UserError: settings.json is damaged."""
    settings = read_settings(output) if (output / SETTINGS).exists() else None
    if not isinstance(settings, PretrainSettings):  # a fine-tuning run is refused with all that differs
        return None
    newest = retention.find_latest(output / "checkpoints")
    return EarlierStart(output, settings, 0 if newest is None else retention.step_of(newest))


def paper_steps(train_batch_size: int) -> int:
    """The optimizer steps in which a batch of this size reads as many rows as the paper's run."""
    return max(1, round(PAPER_STEPS * PAPER_BATCH / train_batch_size))


def length_of(earlier: EarlierStart | None, given: int | None, train_batch_size: int, max_hours: float | None) -> int:
    """The steps of the run.

    Args:
        earlier: None for a new run.
        given: value of --steps; None if the command line leaves it out.
        train_batch_size: rows in a step; it decides the default length.
        max_hours: value of --max-hours.
    Raises:
        UserError: the length cannot become `given`.
    """
    default = paper_steps(train_batch_size)
    if earlier is None:
        return given or default
    total, made = earlier.settings.steps, earlier.steps_made
    of_earlier = earlier.settings.engine.train_batch_size, earlier.settings.flags.max_hours
    is_other = (train_batch_size, max_hours) != of_earlier  # which is refused, with its own message
    if (given or default) == total or is_other:
        return total
    has_hours = max_hours is not None
    if given is None and not has_hours:
        raise UserError(
            f"{earlier.output} holds a run of {total:,} steps, and without --steps it would have {default:,}; give "
            f"--steps {total} to resume it, or another number to change its length"
        )
    if given is None or has_hours or given <= made:
        reason = "has --max-hours" if has_hours else f"has made {made:,} steps"
        raise UserError(
            f"{earlier.output} holds a run of {total:,} steps and {reason}, so it cannot have {given or default:,}; "
            f"give --steps {total} to resume it, or start another run with --init {earlier.output}"
        )
    return given


def skipped_batches_of(earlier: EarlierStart | None, words: Sequence[str], steps: int) -> tuple[tuple[int, int], ...]:
    """The batches that the run leaves out, from 0: those that earlier starts have recorded, and those in `words`.

    So a batch that a checkpoint has been trained on stays one, and a resume needs no flag.

    Args:
        words: of --skip-batches. Batch N is that of step N, as long as none before it is skipped.
        steps: of the run.
    Raises:
        UserError: a word is no range, or names a batch that is trained on, skipped, or never read.
    """
    recorded = () if earlier is None else earlier.settings.skipped_batches
    next_batch = 0 if earlier is None else batch_of_step(earlier.steps_made, recorded)
    ranges = list(recorded)
    for word in words:
        match = re.fullmatch(r"([1-9]\d{0,17})-([1-9]\d{0,17})", word)
        if match is None or int(match[1]) > int(match[2]):
            raise UserError(f"--skip-batches {word}: give the first and the last batch, as in 1200-1210")
        first, end = int(match[1]) - 1, int(match[2])
        if (first, end) in ranges:  # the same command again
            continue
        if earlier is not None and first < next_batch:
            raise UserError(
                f"--skip-batches {word}: {earlier.output} has been trained on batches up to {next_batch:,}; go back to "
                "an older checkpoint first (docs/troubleshooting.md)"
            )
        if any(first < other_end and other < end for other, other_end in ranges):
            raise UserError(f"--skip-batches {word}: some of these batches are skipped already; give the others")
        ranges.append((first, end))
    for first, _ in sorted(set(ranges) - set(recorded)):
        if first > (last := batch_of_step(steps - 1, [other for other in ranges if other[0] < first])):
            raise UserError(f"--skip-batches: the run ends with batch {last + 1:,}, so it never reads {first + 1:,}")
    return tuple(sorted(ranges))
