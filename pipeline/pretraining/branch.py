"""A run that goes on from a checkpoint of another run (--branch), with another schedule, other data or both.

The new run takes weights, moments and the number of steps. Everything else is its own: the order of the rows from that
step on, the schedule, the hours. Once it has a checkpoint, the other run is not read again.
"""

from pathlib import Path

from common.errors import UserError
from pipeline.checkpoint.checkpoint_manifest import DamagedCheckpoint, check
from pipeline.checkpoint.retention import TAG, step_of, tag_name, tags
from pipeline.checkpoint.run_records import SETTINGS, Branch, PretrainRecord, read_record
from pipeline.pretraining.lengths import EarlierStart
from pipeline.sharing.trained_run import open_run


def find_branch(source: Path | None, earlier: EarlierStart | None) -> tuple[Branch, PretrainRecord] | None:
    """The checkpoint that a run goes on from, and the record of the run that has its model; None without --branch.

    Args:
        source: value of --branch: a run, whose newest checkpoint is meant, or one of its checkpoints.
        earlier: the run in --output if it has begun. It has chosen the checkpoint then.
    Raises:
        UserError: there is no such checkpoint, or it is of a fine-tuning run.
    """
    if source is None:
        return None
    source = source.resolve()
    is_checkpoint = TAG.fullmatch(source.name) is not None and source.parent.name == "checkpoints"
    run, step = (source.parent.parent, step_of(source)) if is_checkpoint else (source, None)
    chosen = None if earlier is None else earlier.record.branch
    if earlier is not None and chosen is not None and chosen.run == str(run) and step in (None, chosen.step):
        if earlier.steps_made:
            return chosen, earlier.record
        step = chosen.step
    if not (run / SETTINGS).exists():
        raise UserError(f"--branch {source} is no run and no checkpoint of one; name RUN or RUN/checkpoints/step-N")
    record = read_record(run)
    if not isinstance(record, PretrainRecord):
        raise UserError(f"--branch {run} is a fine-tuning run; name a run of pipeline.pretrain")
    there = tags(run / "checkpoints")
    if step is None:
        tag = open_run(run).usual()
    elif (tag := run / "checkpoints" / tag_name(step)) not in there:
        steps = ", ".join(str(step_of(one)) for one in reversed(there)) or "none"
        raise UserError(f"--branch {run} has no checkpoint of step {step}; its steps: {steps}")
    try:
        check(tag, content=False)
    except DamagedCheckpoint as error:
        raise UserError(f"--branch {tag} is damaged ({error}); name another checkpoint") from None
    return Branch(str(run), step_of(tag)), record


def check_branch(branch: Branch, record: PretrainRecord, optimizer: str, steps: int) -> None:
    """Raises UserError if a run of `steps` steps with this optimizer cannot go on from a checkpoint."""
    if (before := record.optimizer.get("type")) != optimizer:
        raise UserError(
            f"--branch {branch.run} was trained by {before}, whose moments mean something else to {optimizer}; keep "
            f"the optimizer, or start with --init {branch.run}"
        )
    if steps <= branch.step:
        raise UserError(
            f"--branch goes on from step {branch.step:,}, and the run has {steps:,} steps; give --steps with those of "
            "before included"
        )
