"""The settings of a run: its flags, and what was found out from files, data and hardware when it started."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from model.config import AlbertConfig, ExecutionOptions
from pipeline.data.sampler import Ranges
from pipeline.engine.config import EngineConfig
from pipeline.settings import declare
from pipeline.settings.declare import setting
from pipeline.settings.run import RunFlags
from pipeline.training import schedule
from pipeline.training.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class RunSettings(RunFlags):
    """What a trainer needs to know of a run. The flags are those of `RunFlags`.

    Attributes:
        model: architecture.
        execution: how the model computes; it never changes what the model computes.
        engine: the DeepSpeed JSON, fitted to the number of ranks; it holds all batch sizes.
        steps: optimizer steps of the whole run.
        warmup_steps: optimizer steps; None for the default of the schedule.
        log_interval: steps from one logged line to the next.
        eval_interval: steps from one evaluation to the next.
        save_interval: steps from one checkpoint to the next.
        patience: stop after this many steps without a better evaluation; None disables.
        kept_checkpoints: how many of the newest checkpoints are kept; the best one is kept as well.
        skipped_batches: that are not trained on, from 0.
        command: the words of the command line that gives the flags, for settings.json.
        config: the flags as YAML, for config.yaml.

    Raises:
        UserError: see `schedule`.
    """

    model: AlbertConfig = setting(identity=True)
    execution: ExecutionOptions
    engine: EngineConfig
    steps: int
    warmup_steps: int | None
    log_interval: int = setting(recorded=True)
    eval_interval: int
    save_interval: int
    patience: int | None = None
    kept_checkpoints: int
    skipped_batches: Ranges = ()
    command: tuple[str, ...] = ()
    config: str = ""

    def __post_init__(self) -> None:
        self.schedule()

    def identity(self) -> dict[str, Any]:
        """The settings that decide which numbers a run computes. They must not change when the run is resumed.

        Ranks, micro-batch, ZeRO stage, precision, intervals and the location of the data may change.
        """
        return declare.marked(self, "identity")

    def optimization(self) -> dict[str, Any]:
        """The part of the DeepSpeed JSON that belongs to the identity."""
        json = self.engine.json
        return {
            "train_batch_size": self.engine.train_batch_size,
            "optimizer": json["optimizer"],
            "scheduler": json.get("scheduler"),
            "gradient_clipping": json.get("gradient_clipping"),
        }

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, for `settings.json`."""
        return {
            **self.identity(),
            **declare.marked(self, "recorded"),
            "command": self.command,
            "implementation": dataclasses.asdict(self.execution),
            "precision": self.engine.precision,
            "world_size": self.engine.world_size,
            "device": self.engine.device,
            "deepspeed": self.engine.json,
        }

    def schedule(self) -> Schedule:
        """The learning rate of each step.

        Raises:
            UserError: an unknown scheduler in the JSON, or a warm-up that is longer than the run.
        """
        block = self.engine.json.get("scheduler")
        return schedule.from_config(block, self.engine.learning_rate, self.warmup_steps, self.steps)
