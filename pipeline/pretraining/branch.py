"""A run that goes on from a checkpoint of another run (--branch), with another schedule, other data or both.

The new run takes weights, moments and the number of steps. Everything else is its own: the order of the rows from that
step on, the schedule, the hours. Once it has a checkpoint, the other run is not read again.
"""

from pathlib import Path

from common.errors import UserError
from pipeline.checkpoint.checkpoint_manifest import DamagedCheckpoint, check
from pipeline.checkpoint.retention import TAG, step_of, tag_name, tags
from pipeline.pretraining.lengths import EarlierStart
from pipeline.settings.run_settings import Branch, PretrainSettings
from pipeline.settings.settings_file import SETTINGS, read_settings
from pipeline.sharing.trained_run import open_run


def find_branch(source: Path | None, earlier: EarlierStart | None) -> tuple[Branch, PretrainSettings] | None:
    """The checkpoint that a run goes on from, and the settings of the run that has its model; None without --branch.

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
    chosen = None if earlier is None else earlier.settings.branch
    if earlier is not None and chosen is not None and chosen.run == str(run) and step in (None, chosen.step):
        if earlier.steps_made:
            return chosen, earlier.settings
        step = chosen.step
    if not (run / SETTINGS).exists():
        raise UserError(f"--branch {source} is no run and no checkpoint of one; name RUN or RUN/checkpoints/step-N")
    settings = read_settings(run)
    if not isinstance(settings, PretrainSettings):
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
    return Branch(str(run), step_of(tag)), settings


def check_branch(branch: Branch, before: PretrainSettings, optimizer: str, steps: int) -> None:
    """Raises UserError if a run of `steps` steps with this optimizer cannot go on from a checkpoint."""
    if before.engine.optimizer != optimizer:
        raise UserError(
            f"--branch {branch.run} was trained by {before.engine.optimizer}, whose moments mean something else to "
            f"{optimizer}; keep the optimizer, or start with --init {branch.run}"
        )
    if steps <= branch.step:
        raise UserError(
            f"--branch goes on from step {branch.step:,}, and the run has {steps:,} steps; give --steps with those of "
            "before included"
        )
