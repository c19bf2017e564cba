"""The model card of an export: README.md with the YAML header that the Hugging Face hub reads.

It is written from the run's own records. card_template.md has its text and tables.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from common import __version__
from common.errors import UserError
from common.text import printable
from data_prep.text.vocabulary import Vocabulary
from model import bert
from model.albert import ModelWithHead
from pipeline.checkpoint.run_records import RESULTS, FinetuneRecord, read_record, read_results
from pipeline.sharing import card_tables
from pipeline.sharing.trained_run import TrainedRun
from pipeline.tasks.task import Task

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("card_template.md")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~#]")
_LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual|code")
_FILL_MASK = """from transformers import pipeline

fill_mask = pipeline("fill-mask", model=MODEL)
for guess in fill_mask("This is the [MASK] of the text."):
    print(guess["token_str"], round(guess["score"], 3))
"""
_ENCODER = """from pathlib import Path

import torch

from data_prep.text.vocabulary import CLS_ID, SEP_ID, Vocabulary
from model import checkpoint

directory = Path(MODEL)
model = checkpoint.load(directory).eval()
vocabulary = Vocabulary.load(directory)
(ids,) = vocabulary.encode(["This is a text."])
with torch.no_grad():
    hidden = model.albert(torch.tensor([[CLS_ID, *ids, SEP_ID]])).last_hidden_state
print(hidden.shape)
"""


@dataclass(frozen=True)
class ExportOptions:
    """What a person chooses or says of an export, because no record knows it.

    Attributes:
        license: identifier as on the hub, such as "apache-2.0"; "other" if it is not stated.
        languages: codes such as "en"; none if they are not stated.
        repository: OWNER/NAME on the hub, for the card; None if the export is not pushed.
        sentence_transformers: whether the library of that name can open the export.

    Raises:
        UserError: an identifier or a code is malformed.
    """

    license: str = "other"
    languages: tuple[str, ...] = ()
    repository: str | None = None
    sentence_transformers: bool = False

    def __post_init__(self) -> None:
        if _IDENTIFIER.fullmatch(self.license) is None:
            raise UserError(f"--license {self.license!r} is not an identifier; give one such as apache-2.0")
        for language in self.languages:
            if _LANGUAGE.fullmatch(language) is None:
                raise UserError(f"--language {language!r} is not a code of two or three letters; give one such as en")


def model_card(
    run: TrainedRun,
    step: int,
    model: ModelWithHead,
    vocabulary: Vocabulary,
    options: ExportOptions,
    name: str,
    in_layout: bool,
) -> str:
    """The content of README.md.

    Args:
        step: of the checkpoint.
        name: of the export, for the title.
        in_layout: whether it is in the layout of `transformers`.
    Raises:
        UserError: a record of the run cannot be read.
    """
    from huggingface_hub import ModelCard, ModelCardData  # takes a third of a second

    record, task = read_record(run.directory), run.task
    is_task = isinstance(record, FinetuneRecord)
    results = run.directory / RESULTS
    examples = read_results(results).get("examples") or {} if is_task and results.exists() else {}
    is_bert = bert.can_express(model.config)
    fields = ModelCardData(
        license=options.license,
        license_name="unknown" if options.license == "other" else None,
        language=list(options.languages) or None,
        library_name="transformers" if in_layout else None,
        pipeline_tag=(task.kind.pipeline_tag if task else "fill-mask") if in_layout else None,
        tags=["bert" if is_bert else "albert", *([task.name] if task else [])],
        datasets=[record.data_directory] if isinstance(record, FinetuneRecord) and record.data_on_hub else None,
    )
    card = ModelCard.from_template(
        fields,
        template_path=str(TEMPLATE),
        name=name,
        version=__version__,
        usage=_usage(task, in_layout, options.repository),
        is_bert=is_bert,
        config=model.config,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        kept=vocabulary.normalization,
        record=record,
        pretraining=record.pretraining if isinstance(record, FinetuneRecord) else record,
        recipe=lambda record: card_tables.recipe(record, examples),
        evaluation=card_tables.evaluation(run.directory, step, task),
        cost=card_tables.cost(run.directory, step, record),
        plain=plain,
        options=options,
        task=task,
        step=step,
        in_layout=in_layout,
    )
    return printable(re.sub(r"\n{3,}", "\n\n", str(card)).rstrip(), keep="\n") + "\n"


def plain(value: object) -> str:
    """A value as one line in which no character has a meaning in Markdown."""
    if isinstance(value, float):
        return f"{value:g}"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(text.split()))


def _usage(task: Task | None, in_layout: bool, repository: str | None) -> str | None:
    """Python that opens the model and uses it once; None if nothing that a program can import opens it."""
    if task is None:
        code = _FILL_MASK if in_layout else _ENCODER
    elif in_layout or task.kind.architecture is None:
        code = task.kind.usage(task)
    else:
        return None  # it has a class in `transformers`, but its layers share in a way that `transformers` lacks
    return code.strip().replace("MODEL", f'"{repository or "."}"')
