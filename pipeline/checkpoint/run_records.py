"""The JSON files of a run: settings.json and results.json.

settings.json is written and read as one type. Of results.json, the types list the keys that some command reads.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.errors import UserError
from common.files.json_files import Count, Finite, Positive, check_as, read_object
from model.config import AlbertConfig

RESULTS = "results.json"
SETTINGS = "settings.json"
FORMAT = 4
"""Of settings.json, and so of a run."""
_REMEDY = "restore it, or leave that run out"


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
    sources: list[SourceRecord]
    language: str = ""


@dataclass(frozen=True)
class Branch:
    """The checkpoint of another run that a run goes on from: the directory of that run, and the step."""

    run: str
    step: Count


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """settings.json: what decides the results of a run (`IDENTITY`), and how its last start executed it.

    Attributes:
        init, init_weights, init_model: directory, digest and architecture of the model of --init.
        data: digest of the shards, of several corpora each with its weight; or digest of the examples.
        execution: `ExecutionOptions`.
        deepspeed: the JSON that the engine got.
    """

    format: int = FORMAT
    model: dict[str, Any]
    seed: Count
    deterministic: bool
    max_hours: Finite | None
    data: str | list[tuple[str, Finite]]
    init: str | None
    init_weights: str | None
    init_model: dict[str, Any] | None
    log_interval: Positive
    eval_interval: Positive
    save_interval: Positive
    execution: dict[str, Any]
    precision: str
    world_size: Positive
    device: str
    deepspeed: dict[str, Any]

    @property
    def config(self) -> AlbertConfig:
        """The architecture. Raises ValueError if it cannot be."""
        return AlbertConfig.from_dict(self.model)

    def identity(self) -> dict[str, Any]:
        """The values of `IDENTITY`, as JSON has them."""
        values = dataclasses.asdict(self)
        found: dict[str, Any] = json.loads(json.dumps({name: values[name] for name in IDENTITY if name in values}))
        return found


@dataclass(frozen=True, kw_only=True)
class PretrainRecord(RunRecord):
    """settings.json of a pre-training run."""

    objective: Literal["sop", "nsp", "mlm"]
    masking: dict[str, Any]
    steps: Positive
    warmup_steps: Count
    eval_batches: Positive | None
    train_batch_size: Positive
    optimizer: dict[str, Any]
    scheduler: dict[str, Any] | None
    gradient_clipping: Finite | None
    distilled: dict[str, Any] | None
    corpora: list[CorpusRecord]
    skipped_batches: list[tuple[Count, Count]]
    data_directories: list[str]
    eval_data_directories: list[str]
    branch: Branch | None = None
    scored_on: str = ""


@dataclass(frozen=True, kw_only=True)
class FinetuneRecord(RunRecord):
    """settings.json of a fine-tuning run."""

    task: str
    own_task: dict[str, Any] | None
    random_weights: bool
    hyperparameters: dict[str, Any]
    pretraining: PretrainRecord | None
    data_directory: str
    data_on_hub: bool


IDENTITY = (
    *("model", "seed", "deterministic", "max_hours", "data", "init_weights", "objective", "masking"),
    *("warmup_steps", "eval_batches", "train_batch_size", "optimizer", "scheduler", "gradient_clipping", "distilled"),
    "branch",
    *("task", "own_task", "random_weights", "hyperparameters"),
)
"""What must not change when a run is resumed, because it decides which numbers the run computes.

Ranks, micro-batch, ZeRO stage, precision, intervals and the location of the data may change, and the length by the
rules of `pipeline.pretraining.lengths`.
"""


@dataclass(frozen=True)
class TaskRecord:
    """What an export says of its fine-tuning run; names and values are those of settings.json."""

    task: str
    own_task: dict[str, Any] | None
    precision: str
    hyperparameters: dict[str, Any]


@dataclass(frozen=True)
class Head:
    """The keys that are read of head.json, or of a config.json, which has the task after fine-tuning only.

    Attributes:
        finetuning_task: its name; None after pre-training, and in most published models.
        id2label: the names of the outputs; None if they are not recorded.
        architectures, problem_type: as `transformers` calls them.
        fine_tuning: in exports of this project, what settings.json of the run said of the task.
    """

    finetuning_task: str | None = None
    id2label: dict[str, Any] | None = None
    architectures: list[str] | None = None
    problem_type: str | None = None
    fine_tuning: TaskRecord | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the head's outputs, in their order."""
        return None if self.id2label is None else tuple(map(str, self.id2label.values()))


Metrics = dict[str, dict[str, Finite]]
"""Split to metric to value."""


@dataclass(frozen=True, kw_only=True)
class ResultsRecord:
    """results.json of a fine-tuning run (`metrics`), or of several seeds (`seeds`, `median`)."""

    task: str
    own_task: dict[str, Any] | None = None
    init: str | None = None
    random_weights: bool | None = None
    metrics: Metrics | None = None
    seeds: list[Any] | None = None
    median: Metrics | None = None
    spread: dict[str, dict[str, list[Finite]]] | None = None
    steps: Count | None = None
    best_step: Count | None = None
    predicted_data: str | None = None


@dataclass(frozen=True, kw_only=True)
class OneRunRecord(ResultsRecord):
    """results.json of one seed, from which a summary of several seeds is made."""

    seed: Count
    best_step: Count
    metrics: Metrics
    model: dict[str, Any]
    hyperparameters: dict[str, Any]
    examples: dict[str, Count]


def read_results(path: Path, kind: type[ResultsRecord] = ResultsRecord) -> dict[str, Any]:
    """The content of a results.json. Raises UserError if it cannot be read or does not fit `kind`."""
    content = read_object(path, _REMEDY)
    found = check_as(content, kind, path, _REMEDY, extra="ignore")
    if (found.median if found.seeds else found.metrics) is None:
        raise UserError(f"{path} lacks the key {'median' if found.seeds else 'metrics'}; {_REMEDY}")
    return content


def read_record(run: Path) -> PretrainRecord | FinetuneRecord:
    """settings.json of a run. Raises UserError: it is missing, damaged, or of another version of this project."""
    path = run / SETTINGS
    if not os.path.lexists(path):
        raise UserError(
            f"{run} holds no run (no {SETTINGS}); name the --output of pipeline.pretrain or pipeline.finetune"
        )
    content = read_object(path, _REMEDY)
    if (form := content.get("format")) != FORMAT:
        raise UserError(
            f"{path} has format {form!r:.20}, and this program reads {FORMAT}; train again, or leave that run out"
        )
    kind: type[PretrainRecord | FinetuneRecord] = PretrainRecord if "objective" in content else FinetuneRecord
    record = check_as(content, kind, path, _REMEDY)
    try:
        record.config  # noqa: B018
    except ValueError as error:
        raise UserError(f"{path}: model: {error}; {_REMEDY}") from None
    return record
