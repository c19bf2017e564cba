"""The settings of a run: its flags, and what was found out from files, data and hardware when it started."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from model.config import AlbertConfig, ExecutionOptions
from pipeline.checkpoint.run_records import Branch, RunRecord
from pipeline.data.sampler import Ranges
from pipeline.engine.deepspeed_config import EngineConfig
from pipeline.settings.run_flags import RunFlags
from pipeline.training import schedule
from pipeline.training.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class RunSettings(ABC):
    """What a trainer needs to know of a run.

    Attributes:
        flags: of the command line.
        model: architecture.
        execution: how the model computes; it never changes what the model computes.
        engine: the DeepSpeed JSON, fitted to the number of ranks; it holds all batch sizes.
        steps: optimizer steps of the whole run.
        warmup_steps: optimizer steps; None for the default of the schedule.
        log_interval: steps from one logged line to the next.
        eval_interval: steps from one evaluation to the next.
        save_interval: steps from one checkpoint to the next.
        kept_checkpoints: how many of the newest checkpoints are kept; the best one is kept as well.
        milestones: steps after which a checkpoint is saved that is never deleted.
        skipped_batches: that are not trained on, from 0.
        scored_on: digest of the data that the checkpoints are scored on; "" if it is part of the run's identity.
        branch: the checkpoint of another run that this run goes on from; None: it begins at step 0.

    Raises:
        UserError: see `schedule`.
    """

    flags: RunFlags
    model: AlbertConfig
    execution: ExecutionOptions
    engine: EngineConfig
    steps: int
    warmup_steps: int | None
    log_interval: int
    eval_interval: int
    save_interval: int
    kept_checkpoints: int
    milestones: Collection[int] = ()
    skipped_batches: Ranges = ()
    scored_on: str = ""
    branch: Branch | None = None

    def __post_init__(self) -> None:
        self.schedule()

    @abstractmethod
    def record(self) -> RunRecord:
        """What settings.json holds."""

    @property
    def first_step(self) -> int:
        """The step that a new run begins at: 0, or that of the branch."""
        return 0 if self.branch is None else self.branch.step

    @property
    def starts_trained(self) -> bool:
        """Whether a new run begins with trained weights, so that an evaluation before the first step says something."""
        return self.branch is not None

    def common_record(self) -> dict[str, Any]:
        """The fields of `RunRecord` that follow from these settings alone."""
        return {
            "model": self.model.to_dict(),
            **{name: getattr(self.flags, name) for name in ("seed", "deterministic", "max_hours")},
            **{name: getattr(self, name) for name in ("log_interval", "eval_interval", "save_interval")},
            "execution": dataclasses.asdict(self.execution),
            "precision": self.engine.precision,
            "world_size": self.engine.world_size,
            "device": self.engine.device,
            "deepspeed": self.engine.json,
        }

    def optimization(self) -> dict[str, Any]:
        """The part of the DeepSpeed JSON that decides the results."""
        json = self.engine.json
        return {
            "train_batch_size": self.engine.train_batch_size,
            "optimizer": json["optimizer"],
            "scheduler": json.get("scheduler"),
            "gradient_clipping": json.get("gradient_clipping"),
        }

    def schedule(self) -> Schedule:
        """The learning rate of each step.

        Raises:
            UserError: an unknown scheduler in the JSON, or a warm-up that is longer than the run.
        """
        block = self.engine.json.get("scheduler")
        return schedule.from_config(block, self.engine.learning_rate, self.warmup_steps, self.steps)
