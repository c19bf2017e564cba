"""Exports a checkpoint as a directory: the model, its vocabulary and a model card.

The card is README.md with the YAML header that the Hugging Face hub reads. It is written from the run's own records;
card_template.md has its text and tables.
"""

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from common import __version__
from common.errors import UserError, one_line
from common.files import atomic, outputs
from common.text import format_duration, printable
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.tokenizer_json import tokenizer_files
from data_prep.text.vocabulary import Vocabulary, find_vocabulary
from model import bert, checkpoint, huggingface
from model.albert import ModelWithHead
from pipeline.analysis.comparison import read_predictions
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import HEAD_FILE, exported_checkpoint, load_run, restore_file_ids, task_of_run
from pipeline.checkpoint.pooling import write_pooling
from pipeline.checkpoint.retention import step_of
from pipeline.checkpoint.run_directory import RESULTS, read_results
from pipeline.settings.run_settings import FinetuneSettings, PretrainSettings
from pipeline.settings.settings_file import read_settings
from pipeline.tasks.own_tasks import TaskRecord
from pipeline.tasks.task import Task
from pipeline.training import metrics_file

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("card_template.md")
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~#]")
_FIGURE = re.compile(r"(.*/)?((mlm|sop|nsp)_(loss|unigram_entropy|accuracy(_low|_high)?)|distil_\w+)")
_PIPELINE = """from transformers import pipeline

predict = pipeline("{tag}", model=".")
print(predict({given}))"""
_OURS = """import albert_pretraining as albert

print(albert.load(".").{call})"""


def export_run(
    run: Path, out: Path, step: int | None = None, license: str = "other", languages: Sequence[str] = ()
) -> str:
    """Writes the model of a run to the directory `out`, which is never visible half-written.

    Returns the format, for people: the Hugging Face layout, or the project's own if `transformers` has no such model.
    `step`: see `exported_checkpoint`. `license`: as on the hub. `languages`: their codes; without them they are those
    of the text of pre-training, if they are recorded. Raises UserError: there is no such checkpoint, `out` cannot be
    written, or a record of the run is damaged.
    """
    home, place = run.resolve(), out.resolve()
    claim = run_directory.EXPORT_TOOL, os.path.relpath(home, place)  # a run may move with its exports
    outputs.check(out, *claim)
    tag, task = exported_checkpoint(run, step), task_of_run(run)
    name = home.name if place.parent == home else place.name  # the directory "export" of a run has the run's name
    try:
        with outputs.making(out, *claim) as temporary:
            return _write(run, tag, task, temporary, name, license, languages)
    except UserError:
        raise
    except ValueError as error:  # the vocabulary is damaged, or another one
        raise UserError(str(error)) from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {out}: {one_line(error)}; choose another place") from None


def _write(
    run: Path, tag: Path, task: Task | None, directory: Path, name: str, license: str, languages: Sequence[str]
) -> str:
    """Writes the files of the export into `directory`. Returns the format, for people."""
    model, vocabulary_file = load_run(run, tag), find_vocabulary(run)
    vocabulary, positions = load_vocabulary(vocabulary_file), model.config.max_position_embeddings
    head = None if task is None else task.kind.head_fields(task) | {"fine_tuning": _prediction_record(run)}
    in_layout = task is None or task.kind.architecture is not None
    if in_layout:
        restore_file_ids(model, vocabulary)
        huggingface.save(model, directory, tokenizer_files(vocabulary, positions), head)
        if task is None:
            write_pooling(directory, model.config.hidden_size, positions)
    else:
        atomic.write_text(directory / HEAD_FILE, json.dumps(head, indent=2) + "\n")
        checkpoint.save(model, directory)
        shutil.copyfile(vocabulary_file, directory / vocabulary.file_name)
    card = _model_card(run, step_of(tag), task, model, vocabulary, license, languages, name, in_layout)
    atomic.write_text(directory / CARD, card)
    own = "in the project's own format: transformers has no such head"
    return "in the Hugging Face layout" if in_layout else own


def _prediction_record(run: Path) -> dict[str, Any]:
    """What of settings.json decides how `pipeline.predict` reads examples, and what its answers mean."""
    settings = read_settings(run)
    assert isinstance(settings, FinetuneSettings)
    limits = {} if settings.limits is None else dataclasses.asdict(settings.limits)
    lengths = {"max_length": settings.max_length, **limits}
    return dataclasses.asdict(TaskRecord(settings.task, settings.own_task, settings.engine.precision, lengths))


def _model_card(
    run: Path,
    step: int,
    task: Task | None,
    model: ModelWithHead,
    vocabulary: Vocabulary,
    license: str,
    languages: Sequence[str],
    name: str,
    in_layout: bool,
) -> str:
    """The content of README.md. UserError: a record of the run cannot be read."""
    from huggingface_hub import ModelCard, ModelCardData  # takes a third of a second

    settings, is_bert = read_settings(run), bert.can_express(model.config)
    pretraining = settings.pretraining if isinstance(settings, FinetuneSettings) else settings
    trained = [line for line in metrics_file.read_records(run, "train") if line["step"] <= step]
    if trained:
        metrics_file.check_numbers(run, trained[-1], ("seconds", "tokens"))
    corpora = () if pretraining is None else pretraining.corpora
    recorded = ",".join(corpus.language for corpus in corpora).split(",")  # as far as they are recorded
    # The masked-token head of a student begins at random if its teacher has none, and is not trained.
    is_student = isinstance(settings, PretrainSettings) and settings.distilled is not None
    tag = task.kind.pipeline_tag if task else "feature-extraction" if is_student else "fill-mask"
    fields = ModelCardData(
        license=license,
        license_name="unknown" if license == "other" else None,
        language=list(languages or dict.fromkeys(filter(None, recorded))) or None,
        library_name="transformers" if in_layout else None,
        pipeline_tag=tag if in_layout else None,
        tags=["bert" if is_bert else "albert", *([task.name] if task else [])],
        datasets=[settings.data_place] if isinstance(settings, FinetuneSettings) and settings.data_on_hub else None,
    )
    card = ModelCard.from_template(
        fields,
        template_path=str(TEMPLATE),
        name=name,
        version=__version__,
        usage=_usage(task, in_layout, is_student),
        is_bert=is_bert,
        config=model.config,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        kept=vocabulary.normalization,
        settings=settings,
        recipe=_recipe(settings),
        pretraining=pretraining,
        pretraining_recipe=None if pretraining is None else _recipe(pretraining),
        evaluation=_evaluation(run, step, task),
        last=trained[-1] if trained else {},
        duration=format_duration,
        plain=plain,
        license=license,
        task=task,
        step=step,
        in_layout=in_layout,
    )
    return printable(re.sub(r"\n{3,}", "\n\n", str(card)).rstrip(), keep="\n") + "\n"


def plain(value: object) -> str:
    """A value as one line in which no character has a meaning in Markdown."""
    if isinstance(value, Mapping):
        return ", ".join(f"{plain(name)}: {plain(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    text = f"{value:g}" if isinstance(value, float) else " ".join(str(value).split())
    return _SPECIAL.sub(lambda mark: "\\" + mark[0], text)


def _usage(task: Task | None, in_layout: bool, is_student: bool) -> str:
    """Python that opens the model and uses it once: with a pipeline of `transformers`, or with this project."""
    if is_student:
        return _OURS.format(call='embed(["A text.", "Another one."])')
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
        if settings.distilled is not None:
            rows = {"teacher": Path(settings.flags.teacher or "").name or None, "loss": settings.distilled.loss}
        rows |= {"steps": settings.steps, "warmup_steps": settings.warmup_steps, **settings.engine.decisive()}
    else:
        rows = {"task": settings.task, **settings.hyperparameters}
    rows["goes on from"] = settings.branch and f"step {settings.branch.step} of {Path(settings.branch.run).name}"
    rows |= {"initial weights": settings.init and Path(settings.init).name, "seed": settings.flags.seed}
    rows |= {"precision": settings.engine.precision, "ZeRO": settings.engine.json.get("zero_optimization")}
    return {name: value for name, value in rows.items() if value is not None}


def _evaluation(run: Path, step: int, task: Task | None) -> list[tuple[str, str]]:
    """Names and values of what was measured of the model of a step; empty if nothing was.

    The predictions of a fine-tuning run's best step give an interval. Of any other step, and after pre-training, it is
    the evaluation in metrics.jsonl. Raises UserError: a record cannot be read.
    """
    results = run / RESULTS
    if task and results.exists() and (run / "logits").is_dir() and read_results(results).best_step == step:
        return [
            (f"{task.metrics[0]}, {split}", f"{estimate} % of {len(predictions):,} examples")
            for split, predictions in read_predictions(run, task).items()
            if (estimate := task.estimate(predictions))
        ]
    evaluated = next((record for record in metrics_file.read_records(run, "eval") if record["step"] == step), {})
    return [
        (name, f"{value:.4g}")
        for name, value in evaluated.items()
        if value is not None and (_FIGURE.fullmatch(name) if task is None else name in task.metrics)
    ]
