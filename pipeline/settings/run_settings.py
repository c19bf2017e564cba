"""A run: the flags of its command, and what its start has found out. settings.json is exactly these values.

What a resume must not change is marked where it is declared: `flag(..., fixed=True)` of a flag, `fixed()` here. All
else may change: ranks, micro-batch, ZeRO stage, precision, intervals and the location of the data, and the length by
the rules of `pipeline.pretraining.lengths`.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.files.json_files import Count, Positive
from model.config import AlbertConfig, ExecutionOptions
from pipeline.data.collate import Objective
from pipeline.data.masking import MaskingSettings
from pipeline.engine.engine_config import EngineConfig
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.settings.pretrain_flags import PretrainFlags
from pipeline.settings.run_flags import RunFlags
from pipeline.tasks.own_tasks import OwnRecord
from pipeline.tasks.task import SpanLimits


def fixed(part: Callable[[Any], Any] = lambda value: value, **options: Any) -> Any:
    """Declares a field that a resume must not change, or only the `part` of it that `part` returns."""
    return dataclasses.field(metadata={"fixed": part}, **options)


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """One directory of documents that shards were made from, as their manifest lists it."""

    directory: str
    source: str
    documents: Count
    text_bytes: Count


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """One set of training shards: the end of its path, its share of the rows, and what its manifest says.

    language: codes of the languages of the documents, separated by a comma; "" in older records.
    """

    name: str
    weight: Positive
    documents: Count
    tokens: Count
    rows: Count
    max_seq_length: Count
    sources: tuple[SourceRecord, ...]
    language: str = ""


@dataclass(frozen=True)
class Branch:
    """The checkpoint of another run that a run goes on from: the directory of that run, and the step.

    shift: samples that have been read at that step, less as many steps of the batch of this run.
    """

    run: str
    step: Count
    shift: int = 0


@dataclass(frozen=True)
class Distilled:
    """What a run learns from a teacher: the digest of its weights, and the weight of each part of the loss."""

    weights: str
    loss: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """A run, of pre-training or fine-tuning."""

    flags: RunFlags
    model: AlbertConfig = fixed()
    execution: ExecutionOptions
    # the DeepSpeed JSON, fitted to the number of ranks; it holds all batch sizes
    engine: EngineConfig = fixed(EngineConfig.decisive)
    steps: Positive
    warmup_steps: Count | None = fixed()  # None for the default of the schedule
    # log_interval, eval_interval, save_interval: steps from one to the next
    log_interval: Positive
    eval_interval: Positive
    save_interval: Positive
    kept_checkpoints: Positive  # how many of the newest checkpoints are kept beside the best one
    milestones: tuple[Count, ...] = ()  # steps after which a checkpoint is saved that is never deleted
    # that are not trained on, from 0: first, and one past the last
    skipped_batches: tuple[tuple[Count, Count], ...] = ()
    scored_on: str = ""  # digest of the data that the checkpoints are scored on; "" if a resume must have the same data
    # the checkpoint of another run that this run goes on from; None: it begins at step 0
    branch: Branch | None = fixed(default=None)
    # init, init_weights, init_model: directory, digest and architecture of the model of --init; None without one
    init: str | None = None
    init_weights: str | None = fixed(default=None)
    init_model: AlbertConfig | None = None

    @property
    def first_step(self) -> int:
        """The step that a new run begins at: 0, or that of the branch."""
        return 0 if self.branch is None else self.branch.step

    def samples_after(self, steps: int) -> int:
        """The samples that are behind the run after so many steps, those of the run before a branch among them."""
        return steps * self.engine.train_batch_size + (0 if self.branch is None else self.branch.shift)

    @property
    def starts_trained(self) -> bool:
        """Whether a new run begins with trained weights, so that an evaluation before the first step says something."""
        return self.branch is not None

    def fixed_values(self) -> dict[str, Any]:
        """What a resume must not change, by name, as JSON has it."""
        of_flags = {
            each.name: getattr(self.flags, each.name)
            for each in dataclasses.fields(self.flags)
            if each.metadata["flag"].fixed
        }
        of_start = {
            each.name: each.metadata["fixed"](getattr(self, each.name))
            for each in dataclasses.fields(self)
            if "fixed" in each.metadata
        }
        values: dict[str, Any] = json.loads(as_json(of_flags | of_start))
        return values


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(RunSettings):
    """A pre-training run. The vocabulary size and the positions of `model` are those of the data."""

    flags: PretrainFlags
    warmup_steps: Count = fixed()
    objective: Objective = fixed()
    masking: MaskingSettings = fixed()
    # data, data_digests, corpus_weights: directory, sha256 of the manifest, and whole-number weight of each corpus
    data: tuple[Path, ...]
    data_digests: tuple[str, ...] = fixed()
    corpus_weights: tuple[Positive, ...] = fixed()
    corpora: tuple[CorpusRecord, ...]  # what the training shards were made from, for the model card
    distilled: Distilled | None = fixed(default=None)

    @property
    def starts_trained(self) -> bool:
        """See `RunSettings`."""
        return super().starts_trained or self.init is not None


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(RunSettings):
    """A fine-tuning run, of one seed. `model` has the dropout of fine-tuning.

    A checkpoint is saved at every evaluation, because the best evaluated step is the result of the run.
    """

    flags: FinetuneFlags  # of the command line, with the seed and the directory of this run
    steps: Positive = fixed()
    eval_interval: Positive = fixed()
    kept_checkpoints: Positive = 1
    task: str = fixed()
    own_task: OwnRecord | None = fixed(default=None)
    data_digest: str = fixed()  # of the examples that training sees: those of train and the dev sets
    max_length: Positive = fixed()
    # of passages, questions and answers (SQuAD); None for other kinds of task
    limits: SpanLimits | None = fixed(default=None)
    pretraining: PretrainSettings | None = None  # the pre-training run when this run began; None if there was none
    rate_note: str = ""  # why the learning rate is not that of the table; "" if it is, or the user chose it
    data_on_hub: bool = False

    @property
    def data_place(self) -> str:
        """Where the examples come from, for people."""
        return self.flags.data or self.flags.own_data().source

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters of Table 14, and the others that decide the result."""
        hyperparameters: dict[str, Any] = {
            **self.engine.decisive(),
            "learning_rate": self.engine.learning_rate,
            "dropout": self.model.hidden_dropout_prob,
            "classifier_dropout": self.model.classifier_dropout_prob,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "eval_interval": self.eval_interval,
            "max_length": self.max_length,
        }
        return hyperparameters | ({} if self.limits is None else dataclasses.asdict(self.limits))


def as_json(values: Any) -> str:
    """Settings, or parts of them, as JSON of several lines."""
    return json.dumps(values, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else str(value)
