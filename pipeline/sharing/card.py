"""The model card of an export: README.md with the YAML header that the Hugging Face hub reads.

It is written from the run's own records. What they lack is not in it.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import __version__
from common.errors import UserError
from common.normalization import Normalization
from common.text import markdown_table, printable
from model import AlbertConfig, bert
from pipeline.checkpoint.run_records import SETTINGS, FinetuneRecord, PretrainRecord, read_record
from pipeline.sharing import card_tables
from pipeline.sharing.card_tables import Row, plain
from pipeline.tasks.task import Task

CARD = "README.md"
USAGE = Path(__file__).with_name("usage.toml")
TEMPLATE = Path(__file__).with_name("card_template.md")
UNKNOWN_LICENSE = "other"
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
_LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual|code")
_INTERVALS = (
    "Intervals cover the sampling of the evaluated examples. They take the examples as independent, and do not cover "
    "other seeds."
)
_CHOSEN = " A run evaluates several steps and keeps the best one, so scores on its dev set are somewhat too high."
_NO_LICENSE = "Not stated when the model was exported."


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
    from huggingface_hub import ModelCard, ModelCardData  # takes a third of a second

    record = read_record(export.run / SETTINGS)
    is_pretrained = isinstance(record, PretrainRecord)
    data = record.data_directory if isinstance(record, FinetuneRecord) and record.data_on_hub else None
    pipeline_tag = "fill-mask" if export.task is None else export.task.kind.pipeline_tag
    is_bert = bert.can_express(export.config)
    fields = ModelCardData(
        license=options.license,
        license_name="unknown" if options.license == UNKNOWN_LICENSE else None,
        language=list(options.languages) or None,
        library_name="transformers" if export.in_layout else None,
        pipeline_tag=pipeline_tag if export.in_layout else None,
        tags=[
            "bert" if is_bert else "albert",
            *(["onnx"] if export.has_onnx else []),
            *([export.task.name] if export.task else []),
        ],
        datasets=None if data is None else [data],
    )
    origin = (
        f"step {export.step:,} of {record.steps:,} of a pre-training run"
        if isinstance(record, PretrainRecord)
        else f"step {export.step:,} of a fine-tuning run on the task {plain(record.task)}"
    )
    shares = export.config.parameter_sharing != "none"
    kind = "An ALBERT model" if shares else "A model like ALBERT, whose layers share nothing"
    paper = "Lan et al., [arXiv 1909.11942](https://arxiv.org/abs/1909.11942)"
    if is_bert:
        kind, paper = "A BERT model", "Devlin et al., [arXiv 1810.04805](https://arxiv.org/abs/1810.04805)"
    measured = card_tables.describe_evaluation(export.run, export.step, export.task)
    header = ("held-out set" if is_pretrained else "split", "metric", "value")
    evaluation = _table(header, measured) or f"The run recorded no evaluation of step {export.step:,}."
    model = card_tables.describe_model(export.config, export.parameters, export.normalization)
    sections = [
        ("Model", _table(("part", "value"), model)),
        *_training(export.run, record),
        ("Evaluation", evaluation + (f"\n\n{_INTERVALS}{'' if export.task is None else _CHOSEN}" if measured else "")),
        ("Cost", _table(("cost", "value"), card_tables.describe_cost(export.run, export.step, record))),
        ("License", _NO_LICENSE if options.license == UNKNOWN_LICENSE else plain(options.license)),
    ]
    card = ModelCard.from_template(
        fields,
        template_path=str(TEMPLATE),
        export=export,
        opening=f"{kind} ({paper}): {origin}.",
        plain=plain,
        sections=[(title, content) for title, content in sections if content],
        usage=_usage(export),
        version=__version__,
    )
    return printable(re.sub(r"\n{3,}", "\n\n", str(card)).rstrip(), keep="\n") + "\n"


def _table(header: Sequence[str], rows: Sequence[Row]) -> str:
    """A table; empty without rows."""
    return markdown_table(header, rows) if rows else ""


def _training(run: Path, record: PretrainRecord | FinetuneRecord) -> list[tuple[str, str]]:
    """The sections on the training of a run and, if it is recorded, on the pre-training before it."""
    if isinstance(record, PretrainRecord):
        return _pretraining(record, "Training data", "Recipe")
    recipe = _table(("setting", "value"), card_tables.describe_finetuning(run, record))
    if record.random_weights:
        return [("Recipe", recipe), ("Pre-training", "None: the run started from random weights.")]
    before = record.pretraining
    titles = "Pre-training data", "Pre-training recipe"
    return [("Recipe", recipe), *([] if before is None else _pretraining(before, *titles))]


def _pretraining(record: PretrainRecord, data_title: str, recipe_title: str) -> list[tuple[str, str]]:
    header = ("corpus", "sources", "documents", "tokens", "rows", "share of training")
    data = _table(header, card_tables.describe_corpora(record))
    recipe = _table(("setting", "value"), card_tables.describe_pretraining(record))
    return [
        (data_title, data or "The run did not record what its training data was made from."),
        (recipe_title, recipe),
    ]


def _usage(export: Exported) -> str | None:
    """Python that opens the model and uses it once; None for a kind of model without an example."""
    task = export.task
    if task is None:
        name = "fill_mask" if export.in_layout else "encoder"
    elif export.in_layout or task.kind.architecture is None:
        name = task.kind.usage or task.kind.name
    else:
        return None  # it has a class in `transformers`, but its layers share in a way that `transformers` lacks
    if name == "classification" and task and task.input_columns and task.input_columns.second_text:
        name = "pairs"
    code: str = tomllib.loads(USAGE.read_text(encoding="utf-8"))[name]
    return code.strip().replace("MODEL", f'"{export.repository or "."}"')
