"""Exports a checkpoint as a directory: the model, its vocabulary and a model card."""

import argparse
import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from common.errors import UserError, one_line
from common.files import atomic, outputs
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.tokenizer_json import tokenizer_files
from data_prep.text.vocabulary import find_vocabulary
from model import checkpoint, huggingface
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import HEAD_FILE, restore_file_ids
from pipeline.checkpoint.pooling import write_pooling
from pipeline.checkpoint.retention import step_of
from pipeline.settings.run_settings import FinetuneSettings
from pipeline.settings.settings_file import read_settings
from pipeline.sharing.card import CARD, ExportOptions, model_card
from pipeline.sharing.trained_run import TrainedRun, open_run
from pipeline.tasks.own_tasks import TaskRecord


def export_usual(run: Path, out: Path) -> str:
    """Exports the usual checkpoint of the run in a directory. See `export_one`."""
    trained = open_run(run)
    return export_one(trained, trained.usual(), out)


def export_one(
    run: TrainedRun, tag: Path, out: Path, options: ExportOptions | None = None, overwrite: bool | None = None
) -> str:
    """Writes the model of the checkpoint `tag` to the directory `out`, which is never visible half-written.

    Args:
        overwrite: see `outputs.check`.
    Returns:
        The format, for people: the Hugging Face layout, or the project's own if `transformers` has no such model.
    Raises:
        UserError: `out` cannot be written, or a record of the run is damaged.
    """
    source = _source(run.directory, out)
    try:
        with outputs.making(out, run_directory.EXPORT_TOOL, source, overwrite) as temporary:
            return _write(run, tag, temporary, _name(run, out), options or ExportOptions())
    except UserError:
        raise
    except ValueError as error:  # the vocabulary is damaged, or another one
        raise UserError(str(error)) from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {out}: {one_line(error)}; choose another place") from None


def _name(run: TrainedRun, out: Path) -> str:
    """The title of the card. The directory "export" of a run has the run's name."""
    place = out.resolve()
    return run.directory.resolve().name if place.parent == run.directory.resolve() else place.name


def _source(run: Path, out: Path) -> str:
    """What an export is made from: where the run lies, as seen from the export."""
    return os.path.relpath(run.resolve(), out.resolve())


def _write(run: TrainedRun, tag: Path, directory: Path, name: str, options: ExportOptions) -> str:
    """Writes the files of the export into `directory`. Returns the format, for people."""
    model, task, vocabulary_file = run.load(tag), run.task, find_vocabulary(run.directory)
    vocabulary = load_vocabulary(vocabulary_file)
    head = None if task is None else task.kind.head_fields(task) | {"fine_tuning": _prediction_record(run)}
    in_layout = task is None or task.kind.architecture is not None
    if in_layout:
        restore_file_ids(model, vocabulary)
        files = tokenizer_files(vocabulary, model.config.max_position_embeddings)
        huggingface.save(model, directory, files, head)
        if task is None:
            write_pooling(directory, model.config.hidden_size, model.config.max_position_embeddings)
        form = "in the Hugging Face layout"
    else:
        atomic.write_text(directory / HEAD_FILE, json.dumps(head, indent=2) + "\n")
        checkpoint.save(model, directory)
        shutil.copyfile(vocabulary_file, directory / vocabulary.file_name)
        form = "in the project's own format: transformers has no such head"
    card = model_card(run, step_of(tag), model, vocabulary, options, name, in_layout)
    atomic.write_text(directory / CARD, card)
    return form


def _prediction_record(run: TrainedRun) -> dict[str, Any]:
    """What of settings.json decides how `pipeline.predict` reads examples, and what its answers mean."""
    settings = read_settings(run.directory)
    assert isinstance(settings, FinetuneSettings)
    limits = {} if settings.limits is None else dataclasses.asdict(settings.limits)
    lengths = {"max_length": settings.max_length, **limits}
    return dataclasses.asdict(TaskRecord(settings.task, settings.own_task, settings.engine.precision, lengths))


def run(args: argparse.Namespace) -> None:
    """Exports as the parsed command line asks, and prints what was written. Raises UserError for a mistake."""
    options = ExportOptions(args.license, tuple(args.language))
    run, out = args.run.resolve(), args.out.resolve()
    if run.is_relative_to(out) or out.is_relative_to(run / "checkpoints"):
        raise UserError(f"--out {args.out} holds the run or is one of its checkpoints; choose another --out")
    outputs.check(args.out, run_directory.EXPORT_TOOL, _source(args.run, args.out), args.overwrite)
    seeds = sorted(path.parent for path in args.run.glob("seed-*/settings.json"))
    if seeds and not (args.run / "settings.json").exists():
        raise UserError(f"--run {args.run} holds a run of several seeds; name one of them, such as {seeds[0]}")
    trained = open_run(args.run)
    tag = trained.usual() if args.step is None else trained.of_step(args.step)
    print(f"wrote {args.out} {export_one(trained, tag, args.out, options, args.overwrite)}")
