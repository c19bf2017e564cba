"""The length of a run in steps: the paper's by default, and how a later start may change it.

settings.json records the changes. Each of them holds from the step on at which it was made. So a run that resumes at an
earlier step uses the learning rates of that time.
"""

from common.errors import UserError
from pipeline.pretraining.earlier_start import EarlierStart
from pipeline.training.schedule import Length

PAPER_BATCH, PAPER_STEPS = 4096, 125_000


def paper_steps(train_batch_size: int) -> int:
    """The optimizer steps in which a batch of this size reads as many rows as the paper's run."""
    return max(1, round(PAPER_STEPS * PAPER_BATCH / train_batch_size))


def lengths_of(
    earlier: EarlierStart | None, given: int | None, train_batch_size: int, max_hours: float | None
) -> list[Length]:
    """The lengths of the run, those of earlier starts first.

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
        return [Length(0, given or default)]
    lengths, made = list(earlier.lengths), earlier.steps_made
    total = lengths[-1].steps
    other_batch = earlier.settings["train_batch_size"] != train_batch_size  # which is refused, with its own message
    if (given or default) == total or other_batch:
        return lengths
    if given is None:
        raise UserError(
            f"{earlier.output} holds a run of {total:,} steps, and without --steps it would have {default:,}; give "
            f"--steps {total} to resume it, or another number to change its length"
        )
    if max_hours is not None or earlier.settings.get("max_hours") is not None:
        raise UserError(
            f"{earlier.output} holds a run of {total:,} steps with --max-hours, whose length cannot change; give "
            f"--steps {total} to resume it, or start another run with --init {earlier.output}"
        )
    if given <= made:
        raise UserError(
            f"--steps {given} is not more than the {made:,} steps that {earlier.output} has made; give a larger "
            f"number, or --steps {total} for the length that the run has"
        )
    return [length for length in lengths if length.from_step < made] + [Length(made, given)]
