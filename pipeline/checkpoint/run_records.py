"""What the JSON files of a run must hold to be read: settings.json, metrics.jsonl and results.json.

The types list the keys that some command reads. Other keys may follow, and stay as they are.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.errors import UserError
from common.files.json_files import Count, Finite, Positive, check_as, read_object
from model.config import AlbertConfig

RESULTS = "results.json"
SETTINGS = "settings.json"
FORMAT = 2
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
    """One set of training shards: the end of its path, its share of the rows, and the counts of its manifest."""

    name: str
    weight: Positive
    documents: Count
    tokens: Count
    rows: Count
    max_seq_length: Count
    sources: list[SourceRecord]


@dataclass(frozen=True, kw_only=True)
class _Settings:
    model: dict[str, Any]
    precision: str | None = None
    world_size: Positive | None = None
    device: str | None = None
    implementation: dict[str, Any] | None = None
    seed: Count | None = None
    deepspeed: dict[str, Any] | None = None
    command: list[str] | None = None


@dataclass(frozen=True)
class LengthRecord:
    """A length in steps, and the step from which on it holds."""

    from_step: Count
    steps: Positive


@dataclass(frozen=True, kw_only=True)
class PretrainRecord(_Settings):
    """settings.json of a pre-training run."""

    objective: Literal["sop", "nsp", "mlm"]
    steps: Positive
    train_batch_size: Positive
    data: str | list[tuple[str, Finite]]
    masking: dict[str, Any] | None = None
    warmup_steps: Count | None = None
    optimizer: dict[str, Any] | None = None
    scheduler: dict[str, Any] | None = None
    corpora: list[CorpusRecord] | None = None
    eval_data_directories: list[str] | None = None
    lengths: list[LengthRecord] | None = None
    skipped_batches: list[tuple[Count, Count]] | None = None
    init: str | None = None
    init_weights: str | None = None
    init_model: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class FinetuneRecord(_Settings):
    """settings.json of a fine-tuning run."""

    task: str
    own_task: dict[str, Any] | None = None
    model: dict[str, Any] | None = None  # type: ignore[assignment]
    init: str | None = None
    random_weights: bool | None = None
    data_directory: str | None = None
    data_on_hub: bool | None = None
    pretraining: PretrainRecord | None = None
    hyperparameters: dict[str, Any] | None = None


@dataclass(frozen=True)
class Head:
    """The keys that are read of head.json, or of a config.json, which has the task after fine-tuning only.

    Attributes:
        finetuning_task: its name; None after pre-training, and in most published models.
        id2label: the names of the outputs; None if they are not recorded.
        architectures, problem_type: as `transformers` calls them.
        fine_tuning: what settings.json of the run said of the task.
    """

    finetuning_task: str | None = None
    id2label: dict[str, Any] | None = None
    architectures: list[str] | None = None
    problem_type: str | None = None
    fine_tuning: FinetuneRecord | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the head's outputs, in their order."""
        return None if self.id2label is None else tuple(map(str, self.id2label.values()))


@dataclass(frozen=True, kw_only=True)
class MetricsRecord:
    """A line of metrics.jsonl. A number that was not finite is null."""

    step: Count
    split: str
    seconds: Finite | None = None
    tokens: Finite | None = None
    tokens_per_second: Finite | None = None
    interval_tokens: Finite | None = None
    predictions: Finite | None = None
    loss: Finite | None = None
    grad_norm: Finite | None = None
    pairs: Finite | None = None
    mlm_loss: Finite | None = None
    mlm_unigram_entropy: Finite | None = None
    mlm_accuracy: Finite | None = None
    sop_accuracy: Finite | None = None
    sop_accuracy_low: Finite | None = None
    sop_accuracy_high: Finite | None = None
    nsp_accuracy: Finite | None = None
    nsp_accuracy_low: Finite | None = None
    nsp_accuracy_high: Finite | None = None


Metrics = dict[str, dict[str, Finite]]
"""Split to metric to value."""


@dataclass(frozen=True, kw_only=True)
class ResultsRecord:
    """results.json of a fine-tuning run (`metrics`), of several seeds (`seeds`, `median`), or of an ensemble."""

    task: str
    own_task: dict[str, Any] | None = None
    init: str | None = None
    random_weights: bool | None = None
    metrics: Metrics | None = None
    seeds: list[Any] | None = None
    median: Metrics | None = None
    ensemble: list[str] | None = None
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


def read_settings(path: Path) -> dict[str, Any]:
    """The content of a settings.json, of a pre-training run if it has the key "objective".

    Raises UserError if it cannot be read, does not fit `PretrainRecord` or `FinetuneRecord`, or its model cannot be.
    """
    content = read_object(path, _REMEDY)
    if (form := content.get("format")) != FORMAT:
        raise UserError(
            f"{path} has format {form!r:.20}, and this program reads {FORMAT}; train again, or leave that run out"
        )
    check_as(content, PretrainRecord if "objective" in content else FinetuneRecord, path, _REMEDY, extra="ignore")
    if content.get("model") is not None:
        model_of(content, path)
    return content


def read_record(path: Path) -> PretrainRecord | FinetuneRecord:
    """The content of a settings.json as a record. Raises UserError as `read_settings`."""
    content = read_settings(path)
    kind: type[PretrainRecord | FinetuneRecord] = PretrainRecord if "objective" in content else FinetuneRecord
    return check_as(content, kind, path, _REMEDY, extra="ignore")


def model_of(settings: dict[str, Any], source: Path) -> AlbertConfig:
    """The architecture in the content of a settings.json. Raises UserError if there is no such architecture."""
    if settings.get("model") is None:
        raise UserError(f"{source} lacks the key model; {_REMEDY}")
    try:
        return AlbertConfig.from_dict(settings["model"])
    except ValueError as error:
        raise UserError(f"{source}: model: {error}; {_REMEDY}") from None
