"""Weights & Biases, also its offline mode (WANDB_MODE=offline)."""

import os
import secrets
from typing import Any

from pipeline.tracking.tracker import PROJECT, JsonBlock, Scalars, Service, TrackedRun, shown

LOGIN_SECONDS = 10
"""How long a person at a terminal is asked for an API key. A run must not wait for an answer that never comes."""


class WandbRun(Service):
    """Logs to one W&B run, which a resumed run continues.

    The x axis is the number `step`, because W&B's own step cannot go back after a resume.

    The `wandb` block of the DeepSpeed JSON has project, group and team.
    """

    block = package = "wandb"

    def __init__(self, run: TrackedRun, block: JsonBlock) -> None:
        import wandb

        identifier = run.id_of("wandb") or secrets.token_hex(8)
        self._run: Any = wandb.init(
            project=block.get("project") or os.environ.get("WANDB_PROJECT") or PROJECT,
            group=block.get("group"),
            entity=block.get("team"),
            name=run.name,
            id=identifier,
            resume="allow",
            dir=os.environ.get("WANDB_DIR") or str(run.directory),
            config=shown(run.settings),
            allow_val_change=True,
            settings=wandb.Settings(
                silent=True, console="off", login_timeout=LOGIN_SECONDS, disable_git=True, disable_code=True
            ),
        )
        run.remember("wandb", identifier)
        for axis in ("step", "tokens", "epochs"):
            self._run.define_metric(axis, hidden=True)
        self._run.define_metric("*", step_metric="step")

    def log(self, scalars: Scalars) -> None:
        """Logs the scalars of one record."""
        self._run.log({**scalars.values, **scalars.consumed, "step": scalars.step})

    def close(self, finished: bool) -> None:
        """Ends the W&B run; one that may be resumed is marked as failed until then."""
        self._run.finish(exit_code=0 if finished else 1)
