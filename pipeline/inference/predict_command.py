"""The work of `pipeline.predict`: checks the command, predicts, and writes."""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from common.errors import UserError
from common.files.json_files import Positive, check_as
from data_prep.text.vocabulary import Vocabulary, find_vocabulary
from model import AlbertForPreTraining, AlbertModel
from model.albert import ModelWithHead
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import load_into, load_pretrained, read_initial_weights
from pipeline.checkpoint.run_records import RESULTS, SETTINGS, read_record
from pipeline.finetuning.fine_tuning import batches_of_size, outputs_of
from pipeline.inference import pretrained, tables
from pipeline.sharing.trained_run import open_run
from pipeline.tasks.files.rows import ExampleRow
from pipeline.tasks.task import Columns, SpanLimits

_REMEDY = "restore it, or name another run"
_COPY_VOCABULARY = "copy it from the run's export, or name another run"


@dataclass(frozen=True)
class _Limits(SpanLimits):
    """What decides how examples become inputs, from the hyperparameters of a run."""

    max_length: Positive = field(kw_only=True)


def run(args: argparse.Namespace) -> None:
    """Runs a parsed command line. Raises UserError for a mistake; nothing is written then."""
    if not (args.run / SETTINGS).exists() and (args.run / RESULTS).exists():
        raise UserError(f"--run {args.run} holds several seeds or an ensemble; name one run, such as its seed-0")
    if args.embed:
        embed_texts(args)
        return
    settings = run_directory.read_settings(args.run)
    if args.mask:
        if "task" in settings:
            raise UserError(f"--mask needs a pre-training run, and {args.run} is fine-tuned; give --input")
        fill_masks(args)
    elif "task" not in settings:
        raise UserError(f"{args.run} is a pre-training run; give --mask TEXT, or name a fine-tuning run")
    else:
        predict(args)


def predict(args: argparse.Namespace) -> None:
    """Predicts the rows of --input and writes them to --out."""
    _check_files(args)
    trained = open_run(args.run)
    task = trained.task
    assert task is not None
    settings = read_record(args.run / SETTINGS)
    limits = check_as(
        getattr(settings, "hyperparameters", None) or {}, _Limits, args.run / SETTINGS, _REMEDY, extra="ignore"
    )
    columns = tables.columns_for(task, args.text_column, args.second_text_column, args.choice_columns)
    tables.check_output(args.out)
    given = tables.read(task, columns, args.input)
    if taken := next((name for name in task.kind.record_names if name in given.columns), None):
        raise UserError(f"the input has a column {taken!r}, as the output will; rename it")
    vocabulary = Vocabulary.load(args.run, _COPY_VOCABULARY)
    model = trained.load()
    _check_size(args.run, vocabulary, model)
    length = min(limits.max_length, model.config.max_position_embeddings)
    features = task.kind.make_features(task, vocabulary, given.examples, length, limits)
    device = _device()
    batches = batches_of_size(features, args.batch_size)
    found = outputs_of(model.to(device, _dtype(settings.precision, device)), features, device, batches)
    by_id = task.kind.records(task, features.predictions(found))
    predicted = (by_id[example.id] for example in given.examples)
    tables.write(args.out, [{**row, **record} for row, record in zip(given.rows, predicted)])
    if args.out != tables.PIPE:
        print(f"wrote {args.out}: {len(given.rows):,} predictions of {task.name}")


def embed_texts(args: argparse.Namespace) -> None:
    """Writes the rows of --input with the embedding of their text to --out."""
    if args.mask:
        raise UserError("--mask and --embed both say what to do; drop one")
    _check_files(args)
    tables.check_output(args.out)
    table, column = tables.read_rows(args.input), args.text_column or "text"
    if column not in table.columns:
        raise UserError(f"{table.source} has no column {column!r}; name one of its columns with --text-column")
    if "embedding" in table.columns:
        raise UserError("the input has a column 'embedding', as the output will; rename it")
    texts = [ExampleRow(table, index, Columns(column), "ignored").text(column) for index in range(len(table.rows))]
    weights = read_initial_weights(args.run, "--run")
    tensors = {name.removeprefix("albert."): tensor for name, tensor in weights.tensors.items()}
    model = AlbertModel(weights.config, add_pooling_layer=False)
    load_into(model, {name: tensors[name] for name in model.state_dict() if name in tensors}, args.run)
    found = pretrained.embed(model.to(_device()), weights.vocabulary, texts, args.batch_size)
    rows = [{**row, "embedding": values} for row, values in zip(table.rows, found.tolist())]
    tables.write(args.out, rows)
    if args.out != tables.PIPE:
        print(f"wrote {args.out}: {len(rows):,} embeddings of {found.shape[1]} numbers")


def fill_masks(args: argparse.Namespace) -> None:
    """Prints the most likely pieces in the masks of each --mask, or writes them to --out."""
    if args.input is not None:
        raise UserError("--mask and --input both say what to predict; drop one")
    if args.out is not None:
        tables.check_output(args.out)
    vocabulary = Vocabulary.load(args.run, _COPY_VOCABULARY)
    model = load_pretrained(args.run).to(_device())
    _check_size(args.run, vocabulary, model)
    filled = [(text, pretrained.fill(model, vocabulary, text, args.top_k)) for text in args.mask]
    if args.out is None:
        print("\n".join(line for text, fills in filled for line in pretrained.lines(text, fills)))
        return
    rows = [
        {"text": text, "masks": [[{"piece": one.piece, "probability": one.probability} for one in of] for of in fills]}
        for text, fills in filled
    ]
    tables.write(args.out, rows)
    if args.out != tables.PIPE:
        print(f"wrote {args.out}", file=sys.stderr)


def _check_files(args: argparse.Namespace) -> None:
    for flag, value in (("--input", args.input), ("--out", args.out)):
        if value is None:
            raise UserError(f"{flag} is missing; name a file, or - for a pipe")


def _check_size(run: Path, vocabulary: Vocabulary, model: ModelWithHead | AlbertForPreTraining) -> None:
    """Raises UserError if the vocabulary of the run is not that of its model."""
    if len(vocabulary) != model.config.vocab_size:
        raise UserError(
            f"{find_vocabulary(run)} has {len(vocabulary)} pieces, and the model a vocab_size of "
            f"{model.config.vocab_size}; restore the run's own vocabulary"
        )


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _dtype(precision: str | None, device: torch.device) -> torch.dtype:
    """The dtype in which the run evaluated, as far as the device computes in it."""
    if precision == "bf16":
        return torch.bfloat16
    return torch.float16 if precision == "fp16" and device.type == "cuda" else torch.float32
