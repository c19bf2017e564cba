"""The model card of an export: README.md with the YAML header that the Hugging Face hub reads.

It is written from the run's own records. card_template.md has its text and tables.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import __version__
from common.text import format_duration, printable
from data_prep.text.vocabulary import Vocabulary
from model import bert
from model.albert import ModelWithHead
from pipeline.analysis.comparison import estimate_of
from pipeline.analysis.finished_runs import read_predictions
from pipeline.checkpoint.results import RESULTS, read_results
from pipeline.settings.run_settings import FinetuneSettings, PretrainSettings
from pipeline.settings.settings_file import read_settings
from pipeline.sharing.trained_run import TrainedRun
from pipeline.tasks.task import Task
from pipeline.training import metrics_file

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("card_template.md")
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~#]")
_FIGURE = re.compile(r"(.*/)?(mlm|sop|nsp)_(loss|unigram_entropy|accuracy(_low|_high)?)")
_PIPELINE = """from transformers import pipeline

predict = pipeline("{tag}", model=".")
print(predict({given}))"""
_OURS = """import albert_pretraining as albert

print(albert.load(".").{call})"""


@dataclass(frozen=True)
class ExportOptions:
    """What a person chooses or says of an export, because no record knows it.

    Attributes:
        license: identifier as on the hub, such as "apache-2.0"; "other" if it is not stated.
        languages: codes such as "en"; none for those of the text of pre-training, if they are recorded.
    """

    license: str = "other"
    languages: tuple[str, ...] = ()


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

    settings, task, is_bert = read_settings(run.directory), run.task, bert.can_express(model.config)
    pretraining = settings.pretraining if isinstance(settings, FinetuneSettings) else settings
    trained = [line for line in metrics_file.read_records(run.directory, "train") if line["step"] <= step]
    metrics_file.check_numbers(run.directory, trained[-1] if trained else {}, ("seconds", "tokens") if trained else ())
    fields = ModelCardData(
        license=options.license,
        license_name="unknown" if options.license == "other" else None,
        language=list(options.languages or _languages(pretraining)) or None,
        library_name="transformers" if in_layout else None,
        pipeline_tag=(task.kind.pipeline_tag if task else "fill-mask") if in_layout else None,
        tags=["bert" if is_bert else "albert", *([task.name] if task else [])],
        datasets=[settings.data_place] if isinstance(settings, FinetuneSettings) and settings.data_on_hub else None,
    )
    card = ModelCard.from_template(
        fields,
        template_path=str(TEMPLATE),
        name=name,
        version=__version__,
        usage=_usage(task, in_layout),
        is_bert=is_bert,
        config=model.config,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        kept=vocabulary.normalization,
        settings=settings,
        recipe=_recipe(settings),
        pretraining=pretraining,
        pretraining_recipe=None if pretraining is None else _recipe(pretraining),
        evaluation=_evaluation(run.directory, step, task),
        last=trained[-1] if trained else {},
        duration=format_duration,
        plain=plain,
        options=options,
        task=task,
        step=step,
        in_layout=in_layout,
    )
    return printable(re.sub(r"\n{3,}", "\n\n", str(card)).rstrip(), keep="\n") + "\n"


def _languages(pretraining: PretrainSettings | None) -> list[str]:
    """The languages of the training text, as far as they are recorded, each once."""
    corpora = () if pretraining is None else pretraining.corpora
    return list(dict.fromkeys(code for corpus in corpora for code in corpus.language.split(",") if code))


def plain(value: object) -> str:
    """A value as one line in which no character has a meaning in Markdown."""
    if isinstance(value, Mapping):
        return ", ".join(f"{plain(name)}: {plain(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    text = f"{value:g}" if isinstance(value, float) else " ".join(str(value).split())
    return _SPECIAL.sub(lambda found: "\\" + found[0], text)


def _usage(task: Task | None, in_layout: bool) -> str:
    """Python that opens the model and uses it once: with a pipeline of `transformers`, or with this project."""
    if task is None:
        return _PIPELINE.format(tag="fill-mask", given='"This is the [MASK] of the text."')
    row, given = task.kind.example_row(task), task.kind.pipeline_input
    if in_layout and given:
        if len(row) == 2:
            given = '{"text": "This is the first text.", "text_pair": "This is the second one."}'
        return _PIPELINE.format(tag=task.kind.pipeline_tag, given=given)
    return _OURS.format(call=f"predict([{row}])")


def _recipe(settings: PretrainSettings | FinetuneSettings) -> dict[str, Any]:
    """How a run was trained, by the names of settings.json; what is None is no row."""
    if isinstance(settings, PretrainSettings):
        rows: dict[str, Any] = {"objective": settings.objective, "masking": dataclasses.asdict(settings.masking)}
        rows |= {"steps": settings.steps, "warmup_steps": settings.warmup_steps, **settings.engine.decisive()}
    else:
        rows = {"task": settings.task, **settings.hyperparameters}
    rows |= {"initial weights": settings.init and Path(settings.init).name, "seed": settings.flags.seed}
    rows |= {"precision": settings.engine.precision, "ZeRO": settings.engine.json.get("zero_optimization")}
    return {name: value for name, value in rows.items() if value is not None}


def _evaluation(run: Path, step: int, task: Task | None) -> list[tuple[str, str]]:
    """Names and values of what was measured of the model of a step; empty if nothing was.

    The predictions of a fine-tuning run's best step give an interval. Of any other step, and after pre-training, it is
    the evaluation in metrics.jsonl. Raises UserError: a record cannot be read.
    """
    results, rows = run / RESULTS, []
    if task and results.exists() and (run / "logits").is_dir() and read_results(results).best_step == step:
        for split, predictions in read_predictions(run, task).items():
            if estimate := estimate_of(task, predictions):
                rows.append((f"{task.metrics[0]}, {split}", f"{estimate} % of {len(predictions):,} examples"))
        return rows
    evaluated = next((record for record in metrics_file.read_records(run, "eval") if record["step"] == step), {})
    return [
        (name, f"{value:.4g}")
        for name, value in evaluated.items()
        if value is not None and (_FIGURE.fullmatch(name) if task is None else name in task.metrics)
    ]
