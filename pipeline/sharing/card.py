"""The model card of an export: README.md with the YAML header that the Hugging Face hub reads.

It is written from the run's own records. What they lack is not in it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.normalization import Normalization
from common.text import markdown_table
from common.version import __version__
from model import AlbertConfig
from pipeline.checkpoint import run_records
from pipeline.checkpoint.run_records import (
    RESULTS,
    SETTINGS,
    FinetuneRecord,
    PretrainRecord,
    read_results,
)
from pipeline.sharing import card_tables
from pipeline.sharing.card_tables import plain
from pipeline.tasks.task import Task

CARD = "README.md"
SETTINGS_HEADER = ("setting", "value")
UNKNOWN_LICENSE = "other"
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
_LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual|code")
_FILL_MASK = """
from transformers import pipeline

fill_mask = pipeline("fill-mask", model={model})
for guess in fill_mask("This is the [MASK] of the text."):
    print(guess["token_str"], round(guess["score"], 3))
"""
_OWN_PRETRAINED = """
from pathlib import Path

import torch

from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import CLS_ID, SEP_ID, Vocabulary
from model import checkpoint

directory = Path({model})
model = checkpoint.load(directory).eval()
vocabulary = Vocabulary.load(directory / "spiece.model")
(ids,) = vocabulary.encode([normalize("This is a text.", vocabulary.normalization)])
with torch.no_grad():
    hidden = model.albert(torch.tensor([[CLS_ID, *ids, SEP_ID]])).last_hidden_state
print(hidden.shape)
"""


@dataclass(frozen=True)
class CardOptions:
    """What a person says of a model, because no record knows it.

    Attributes:
        license: identifier as on the hub, such as "apache-2.0"; "other" if it is not stated.
        languages: codes such as "en"; none if they are not stated.

    Raises:
        UserError: an identifier or a code is malformed.
    """

    license: str = UNKNOWN_LICENSE
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _IDENTIFIER.fullmatch(self.license) is None:
            raise UserError(
                f"--license {self.license!r} is not an identifier; give one such as apache-2.0 or cc-by-4.0"
            )
        for language in self.languages:
            if _LANGUAGE.fullmatch(language) is None:
                raise UserError(f"--language {language!r} is not a code of two or three letters; give one such as en")


@dataclass(frozen=True)
class Exported:
    """What a card says of one export.

    Attributes:
        run: directory of the run.
        step: of the checkpoint.
        name: of the export, for the title.
        config, parameters: the model's architecture, and its number of parameters.
        normalization: what its vocabulary keeps of a text.
        task: of a fine-tuned model; None after pre-training.
        in_layout: whether it is in the layout of `transformers`.
        has_onnx: whether model.onnx is beside it.
        repository: OWNER/NAME on the hub; None if it is not pushed.
        revision: its branch there; None for main.
    """

    run: Path
    step: int
    name: str
    config: AlbertConfig
    parameters: int
    normalization: Normalization
    task: Task | None
    in_layout: bool
    has_onnx: bool = False
    repository: str | None = None
    revision: str | None = None


def model_card(export: Exported, options: CardOptions) -> str:
    """The content of README.md. Raises UserError if a record of the run cannot be read."""
    record = run_records.read_record(export.run / SETTINGS)
    architecture = card_tables.describe_model(export.config, export.parameters, export.normalization)
    parts = [
        _header(export, options, record),
        f"# {plain(export.name)}",
        _opening(export, record),
        _how_to_use(export),
        _section(
            "Model",
            markdown_table(("part", "value"), architecture),
        ),
    ]
    if isinstance(record, PretrainRecord):
        parts += _pretraining(record, export.run)
        measured = card_tables.describe_evaluation(export.run, export.step)
        header = ("held-out set", "figure", "value")
    else:
        assert export.task is not None
        parts += _finetuning(record, export.run)
        measured = card_tables.describe_task_evaluation(export.run, export.step, export.task)
        header = ("split", "metric", "value")
    parts.append(_evaluation(measured, header, export.step))
    if cost := card_tables.describe_cost(export.run, export.step, record):
        parts.append(_section("Cost", markdown_table(("cost", "value"), cost)))
    parts.append(_license(options))
    return "\n\n".join(parts) + "\n"


def _header(export: Exported, options: CardOptions, record: PretrainRecord | FinetuneRecord) -> str:
    """The YAML at the top of the card, which the hub reads."""
    from huggingface_hub import ModelCardData  # takes a third of a second

    pipeline_tag = "fill-mask" if export.task is None else export.task.kind.pipeline_tag
    data = record.data_directory if isinstance(record, FinetuneRecord) and record.data_on_hub else None
    fields = ModelCardData(
        license=options.license,
        license_name="unknown" if options.license == UNKNOWN_LICENSE else None,
        language=list(options.languages) or None,
        library_name="transformers" if export.in_layout else None,
        pipeline_tag=pipeline_tag if export.in_layout else None,
        tags=["albert", *(["onnx"] if export.has_onnx else []), *([export.task.name] if export.task else [])],
        datasets=None if data is None else [data],
    )
    return f"---\n{fields.to_yaml()}\n---"


def _opening(export: Exported, record: PretrainRecord | FinetuneRecord) -> str:
    if isinstance(record, PretrainRecord):
        origin = f"step {export.step:,} of {record.steps:,} of a pre-training run"
    else:
        origin = f"step {export.step:,} of a fine-tuning run on the task {plain(record.task)}"
    shares = export.config.parameter_sharing != "none"
    kind = (
        "An ALBERT model" if shares else "A model like BERT, whose layers share nothing, in the architecture of ALBERT"
    )
    return (
        f"{kind} (Lan et al., [arXiv 1909.11942](https://arxiv.org/abs/1909.11942)): {origin}.\n"
        f"albert-pretraining {__version__} wrote this card from the records of that run."
    )


def _section(title: str, *parts: str) -> str:
    return "\n\n".join([f"## {title}", *parts])


def _how_to_use(export: Exported) -> str:
    code = _usage(export.task, export.in_layout, export.repository or ".")
    parts = []
    if code is not None:
        if export.repository is None:
            parts.append("Start this in the directory of the model, or replace `.` by its path.")
        elif export.revision is not None:
            parts.append(f'Add `revision="{export.revision}"` for the weights of this step.')
        if not export.in_layout:
            parts.append("The model has no class in `transformers`. The code needs this project's packages.")
        parts.append(f"```python\n{code}\n```")
    else:
        parts.append(
            "The model has no class in `transformers`. `albert.safetensors` has its tensors, `albert.json` its "
            "architecture and `head.json` its head, in the format of albert-pretraining."
        )
    if export.has_onnx:
        parts.append("`model.onnx` is the same model for ONNX Runtime. Its inputs are those of the tokenizer.")
    if prepared := card_tables.describe_normalization(export.normalization):
        parts.append(f"Text {prepared} before it is cut into pieces.")
    return _section("How to use", *parts)


def _usage(task: Task | None, in_layout: bool, model: str) -> str | None:
    """Python that opens the model and uses it once; None for a kind of model without an example.

    Args:
        task: of a fine-tuned model; None after pre-training.
        in_layout: whether the export is in the layout of `transformers`.
        model: name of a directory or of a repository of the hub.
    """
    if task is None:
        template = _FILL_MASK if in_layout else _OWN_PRETRAINED
    elif in_layout or task.kind.architecture is None:
        template = task.kind.usage(task)
    else:
        return None  # it has a class in `transformers`, but its layers share in a way that `transformers` lacks
    return template.strip().format(model=f'"{model}"')


def _pretraining(
    record: PretrainRecord, run: Path | None, data_title: str = "Training data", recipe_title: str = "Recipe"
) -> list[str]:
    """The sections on the data and the recipe of a pre-training run."""
    rows = card_tables.describe_corpora(record)
    header = ("corpus", "sources", "documents", "tokens", "rows", "share of training")
    data = markdown_table(header, rows) if rows else "The run did not record what its training data was made from."
    rollbacks = [] if run is None else card_tables.describe_rollbacks(run)
    recipe = markdown_table(SETTINGS_HEADER, card_tables.describe_pretraining(record) + rollbacks)
    return [_section(data_title, data), _section(recipe_title, recipe)]


def _finetuning(record: FinetuneRecord, run: Path) -> list[str]:
    """The sections on the recipe of a fine-tuning run, and on the pre-training before it if it is recorded."""
    results = run / RESULTS
    counts = read_results(results).get("examples") if results.exists() else None
    examples = counts if isinstance(counts, dict) else {}
    found = [_section("Recipe", markdown_table(SETTINGS_HEADER, card_tables.describe_finetuning(record, examples)))]
    if record.random_weights:
        return [*found, _section("Pre-training", "None: the run started from random weights.")]
    if record.pretraining is None:
        return found
    return [*found, *_pretraining(record.pretraining, None, "Pre-training data", "Pre-training recipe")]


def _evaluation(measured: list[tuple[str, ...]], header: tuple[str, ...], step: int) -> str:
    if not measured:
        return _section("Evaluation", f"The run recorded no evaluation of step {step:,}.")
    note = (
        "Intervals cover the sampling of the evaluated examples. They take the examples as independent, and do not "
        "cover other seeds."
    )
    return _section("Evaluation", markdown_table(header, measured), note)


def _license(options: CardOptions) -> str:
    if options.license == UNKNOWN_LICENSE:
        return _section("License", "Not stated when the model was exported.")
    return _section("License", plain(options.license))
