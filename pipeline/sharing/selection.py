"""Chooses which checkpoints of a run are exported."""

from pathlib import Path

from common.errors import UserError
from pipeline.checkpoint.manifest import DamagedCheckpoint, check
from pipeline.checkpoint.retention import find_best, find_latest, step_of, tags
from pipeline.training import metrics_log

MAX_STEPS_NAMED = 12


def revision_of(tag: Path) -> str:
    """The name of a checkpoint's directory in an export of all, and of its branch on the hub, such as step-1000."""
    return f"step-{step_of(tag)}"


def newest_checkpoint(run: Path) -> Path:
    """The newest complete checkpoint. Raises UserError if there is none."""
    found = find_latest(run / "checkpoints", content=True)
    if found is None:
        raise UserError(f"{run / 'checkpoints'} holds no complete checkpoint; train first, or name another run")
    return found


def checkpoint_of_step(run: Path, step: int) -> Path:
    """The checkpoint of one step. Raises UserError, which names the steps that there are."""
    for tag in tags(run / "checkpoints"):
        if step_of(tag) == step:
            return tag
    raise UserError(
        f"{run} has no checkpoint of step {step}: never saved, or deleted for newer ones; "
        f"give --step one of {_steps(run)}"
    )


def every_checkpoint(run: Path) -> list[Path]:
    """All checkpoints that are complete, by step. Raises UserError if there is none, or if one is damaged."""
    found = sorted(tags(run / "checkpoints"), key=step_of)
    for tag in found:
        try:
            check(tag, content=False)
        except DamagedCheckpoint as error:
            raise UserError(f"{tag} is damaged ({error}); move it away, or give --step one of {_steps(run)}") from None
    return found or [newest_checkpoint(run)]


def lowest_loss(run: Path) -> Path:
    """The checkpoint of a pre-training run with the lowest held-out loss, the newest of equals.

    The loss is that of the first set of held-out shards, from metrics.jsonl. Only checkpoints that are there and whose
    step was evaluated count.

    Raises:
        UserError: there is none.
    """
    losses = {record["step"]: record.get("loss") for record in metrics_log.read_records(run, "eval")}
    known = [(losses[step_of(tag)], tag) for tag in tags(run / "checkpoints") if losses.get(step_of(tag)) is not None]
    if not known:
        raise _never_evaluated(run, "pre-train with --eval-data")
    return min(known, key=lambda pair: (pair[0], -step_of(pair[1])))[1]


def highest_score(run: Path) -> Path:
    """The checkpoint of a fine-tuning run with the best metric on the dev set. Raises UserError if none was scored."""
    found = find_best(run / "checkpoints")
    if found is None:
        raise _never_evaluated(run, "fine-tune with a dev set")
    return found


def _never_evaluated(run: Path, remedy: str) -> UserError:
    newest_checkpoint(run)  # says so if there are no checkpoints at all
    return UserError(
        f"{run} has no checkpoint of a step that was evaluated, so none is the best; {remedy}, or give --step one of "
        f"{_steps(run)}"
    )


def _steps(run: Path) -> str:
    """The steps of a run's checkpoints, for people; of many, the newest."""
    steps = [f"{step_of(tag)}" for tag in tags(run / "checkpoints")]
    if not steps:
        newest_checkpoint(run)
    older = ["..."] if len(steps) > MAX_STEPS_NAMED else []
    return ", ".join([*older, *reversed(steps[:MAX_STEPS_NAMED])])
