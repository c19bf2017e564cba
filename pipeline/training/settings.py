"""The settings that pre-training and fine-tuning runs have in common."""

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from model.config import AlbertConfig, ExecutionOptions
from pipeline.engine.config import EngineConfig
from pipeline.training import schedule
from pipeline.training.schedule import Schedule

OnDivergence = Literal["warn", "stop", "rollback"]

EARLIER_DEFAULTS: dict[str, Any] = {
    "model": {"embedding_initializer_range": None, "initial_attention": "random"},
    "deterministic": False,
}
"""Values of these keys in runs whose `settings.json` was written before the keys existed."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(ABC):
    """What a trainer needs to know of a run.

    Attributes:
        model: architecture.
        execution: how the model computes; it never changes what the model computes.
        output: directory of the run.
        engine: the DeepSpeed JSON, fitted to the number of ranks; it holds all batch sizes.
        seed: of every random number of the run.
        steps: optimizer steps of the whole run.
        warmup_steps: optimizer steps; None for the default of the schedule.
        log_interval: steps from one logged line to the next.
        eval_interval: steps from one evaluation to the next.
        save_interval: steps from one checkpoint to the next.
        max_hours: wall-clock limit over all starts of the run; None for no limit.
        host_timeout: seconds without an answer after which a host counts as lost.
        hang_timeout: seconds without progress after which a rank counts as hanging, at least; 0 for never.
        check_interval: steps from one comparison of the ranks' weights to the next; 0 for at saves only.
        save_mode: "background" writes checkpoints while training goes on; "foreground" lets training wait.
        patience: stop after this many steps without a better evaluation; None disables.
        kept_checkpoints: how many of the newest checkpoints are kept; the best one is kept as well.
        track: trackers that get the curves, beside those of the DeepSpeed JSON (`pipeline.tracking.choice`).
        on_divergence: what happens after a spike of the loss; None to look for none.
        max_rollbacks: how often the run may go back to a checkpoint because of a spike.
        deterministic: whether torch uses deterministic algorithms only (pipeline/engine/machine/determinism.py).
        all_curves: whether every number becomes a curve, and not only those that make a useful chart.

    Raises:
        UserError: see `schedule`.
    """

    model: AlbertConfig
    execution: ExecutionOptions
    output: Path
    engine: EngineConfig
    seed: int
    steps: int
    warmup_steps: int | None
    log_interval: int
    eval_interval: int
    save_interval: int
    max_hours: float | None
    host_timeout: float
    hang_timeout: float = 60.0
    check_interval: int = 1
    save_mode: str = "background"
    patience: int | None = None
    kept_checkpoints: int = 5
    track: tuple[str, ...] = ()
    all_curves: bool = False
    on_divergence: OnDivergence | None = None
    max_rollbacks: int = 3
    deterministic: bool = False

    def __post_init__(self) -> None:
        self.schedule()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """The settings that decide which numbers a run computes. They must not change when the run is resumed."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, for `settings.json`."""

    def schedule(self) -> Schedule:
        """The learning rate of each step.

        Raises:
            UserError: an unknown scheduler in the JSON, or a warm-up that is longer than the run.
        """
        block = self.engine.json.get("scheduler")
        return schedule.from_config(block, self.engine.learning_rate, self.warmup_steps, self.steps)

    def execution_dict(self) -> dict[str, Any]:
        """The settings that may change when the run is resumed, as plain values."""
        return {
            "implementation": dataclasses.asdict(self.execution),
            "precision": self.engine.precision,
            "world_size": self.engine.world_size,
            "device": self.engine.device,
            "deepspeed": self.engine.json,
            "log_interval": self.log_interval,
        }
