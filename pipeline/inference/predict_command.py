"""The work of `pipeline.predict`: checks the command, predicts, and writes tables, or JSON Lines through a pipe."""

import argparse
import csv
import dataclasses
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError, one_line
from common.files import atomic, places
from common.files.json_files import Positive, check_as
from data_prep.text.vocabulary import Vocabulary, find_vocabulary
from model import AlbertForPreTraining, AlbertModel
from model.albert import ModelWithHead
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import load_into, load_pretrained, read_initial_weights
from pipeline.checkpoint.run_records import RESULTS, SETTINGS, read_record
from pipeline.finetuning.fine_tuning import batches_of, outputs_of
from pipeline.inference import pretrained
from pipeline.sharing.trained_run import open_run
from pipeline.tasks.files.rows import ExampleRow, check_columns, read_examples
from pipeline.tasks.files.tables import Row, Table, parse_json_lines, read_table
from pipeline.tasks.task import Columns, Examples, SpanLimits, Task

PIPE = "-"
"""In the place of a file: standard input or output, as JSON Lines."""
_REMEDY = "restore it, or name another run"
_COPY_VOCABULARY = "copy it from the run's export, or name another run"

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class _Limits(SpanLimits):
    """What decides how examples become inputs, from the hyperparameters of a run."""

    max_length: Positive = field(kw_only=True)


def run(args: argparse.Namespace) -> None:
    """Runs a parsed command line. Raises UserError for a mistake; nothing is written then."""
    if not (args.run / SETTINGS).exists() and (args.run / RESULTS).exists():
        raise UserError(f"--run {args.run} holds several seeds or an ensemble; name one run, such as its seed-0")
    if args.mask and (args.embed or args.input is not None):
        raise UserError("--mask, --embed and --input: --mask goes alone; drop it, or the others")
    if not args.mask and None in (args.input, args.out):
        raise UserError("--input and --out are needed, or --mask; name files, or - for a pipe")
    if args.out is not None:
        check_output(args.out)
    if args.embed:
        rows = embed_texts(args)
    elif ("task" in run_directory.read_settings(args.run)) == bool(args.mask):
        raise UserError(f"--run {args.run}: --mask needs a pre-training run, and --input one that is fine-tuned")
    else:
        rows = fill_masks(args) if args.mask else predict(args)
    if args.out is not None:
        write(args.out, rows)
        if args.out != PIPE:
            print(f"wrote {args.out}: {len(rows):,} rows")


def predict(args: argparse.Namespace) -> Rows:
    """The rows of --input with their predictions."""
    trained = open_run(args.run)
    task = trained.task
    assert task is not None
    settings = read_record(args.run / SETTINGS)
    hyperparameters = getattr(settings, "hyperparameters", None) or {}
    limits = check_as(hyperparameters, _Limits, args.run / SETTINGS, _REMEDY, extra="ignore")
    columns = columns_for(task, args.text_column, args.second_text_column, args.choice_columns)
    rows, examples = read(task, columns, args.input)
    _refuse_columns(rows, task.kind.record_names)
    vocabulary = Vocabulary.load(args.run, _COPY_VOCABULARY)
    model = trained.load()
    _check_size(args.run, vocabulary, model)
    length = min(limits.max_length, model.config.max_position_embeddings)
    features = task.kind.make_features(task, vocabulary, examples, length, limits)
    device = _device()
    batches = batches_of(features, limit=args.batch_size, by_tokens=False)
    found = outputs_of(model.to(device, _dtype(settings.precision, device)), features, device, batches)
    by_id = task.kind.records(task, features.predictions(found))
    return [{**row, **by_id[example.id]} for row, example in zip(rows, examples)]


def embed_texts(args: argparse.Namespace) -> Rows:
    """The rows of --input with the embedding of their text."""
    table, columns = read_rows(args.input), Columns(args.text_column or "text")
    check_columns(table, columns, labelled=False)
    _refuse_columns(table.rows, ("embedding",))
    texts = [ExampleRow(table, index, columns, "ignored").text(columns.text) for index in range(len(table.rows))]
    weights = read_initial_weights(args.run, "--run")
    tensors = {name.removeprefix("albert."): tensor for name, tensor in weights.tensors.items()}
    model = AlbertModel(weights.config, add_pooling_layer=False)
    load_into(model, {name: tensors[name] for name in model.state_dict() if name in tensors}, args.run)
    found = pretrained.embed(model.to(_device()), weights.vocabulary, texts, args.batch_size)
    return [{**row, "embedding": values} for row, values in zip(table.rows, found.tolist())]


def fill_masks(args: argparse.Namespace) -> Rows:
    """The most likely pieces in the masks of each --mask. Prints them if there is no --out."""
    vocabulary = Vocabulary.load(args.run, _COPY_VOCABULARY)
    model = load_pretrained(args.run).to(_device())
    _check_size(args.run, vocabulary, model)
    filled = [(text, pretrained.fill(model, vocabulary, text, args.top_k)) for text in args.mask]
    if args.out is None:
        print("\n".join(line for text, fills in filled for line in pretrained.lines(text, fills)))
    return [
        {"text": text, "masks": [[{"piece": one.piece, "probability": one.probability} for one in of] for of in fills]}
        for text, fills in filled
    ]


def _refuse_columns(rows: Iterable[Row], names: Sequence[str]) -> None:
    if taken := next((name for row in rows for name in names if name in row), None):
        raise UserError(f"the input has a column {taken!r}, as the output will; rename it")


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


def columns_for(task: Task, text: str | None, second_text: str | None, choices: Sequence[str]) -> Columns:
    """The columns to read: those of the run's training, and in their place those that the command line names.

    Raises UserError for a column that the task does not read.
    """
    columns = task.input_columns
    assert columns is not None
    for flag, given, known in (
        ("--second-text-column", second_text, columns.second_text),
        ("--choice-columns", choices, columns.choices),
    ):
        if given and not known:
            raise UserError(f"{flag}: the run was trained without such a column; drop it")
    return dataclasses.replace(
        columns,
        text=text or columns.text,
        second_text=second_text or columns.second_text,
        choices=tuple(choices) or columns.choices,
    )


def read(task: Task, columns: Columns, source: str) -> tuple[Sequence[Row], Examples]:
    """What is written before each prediction, and the examples: of a table, or of an official file of the task.

    Raises UserError for content that is none of the two; it names file and line.
    """
    if source == PIPE or task.files is None:
        table = read_rows(source)
    elif task.files.is_official(Path(source)):
        examples = task.files.read(task, "test", [Path(source)])
        return [{"id": example.id} for example in examples], examples
    else:
        table = task.files.read_table(Path(source))
    return table.rows, read_examples(table, task.kind, columns, task.labels, "ignored")


def read_rows(source: str) -> Table:
    """The rows of a table in a file, or of JSON Lines in standard input. Raises UserError for broken content."""
    if source != PIPE:
        return read_table(Path(source))
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text (byte {error.start:,}); convert it") from None
    table = parse_json_lines(text, Path("standard input"))
    if not table.rows:
        raise UserError("standard input holds no row; pipe JSON Lines into it")
    return table


def check_output(out: str) -> None:
    """Raises UserError if `out` cannot be written."""
    path = Path(out)
    if out == PIPE:
        return
    if path.suffix.lower() not in WRITERS:
        raise UserError(f"--out {out} has none of the endings {', '.join(WRITERS)}; choose one, or - for a pipe")
    if os.path.lexists(path):
        raise UserError(f"--out {out} exists already; move it away, or choose another name")
    if not path.parent.is_dir():
        raise UserError(f"--out {out}: {path.parent} is not a directory; make it first")
    places.check_directory(path.parent)


def write(out: str, rows: Rows) -> None:
    """Writes the rows in the format of the ending of `out`. Raises UserError if the format cannot hold them."""
    if out == PIPE:
        sys.stdout.buffer.write(_json_lines(rows))  # UTF-8 whatever the terminal's encoding is
        sys.stdout.buffer.flush()
        return
    content = WRITERS[Path(out).suffix.lower()](rows)
    with atomic.replacing(Path(out)) as temporary:
        temporary.write_bytes(content)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _json_lines(rows: Rows) -> bytes:
    return "".join(_json(row) + "\n" for row in rows).encode()


def _separated(rows: Rows, separator: str) -> bytes:
    """CSV. Lists and objects become JSON, a missing value an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _names(rows), delimiter=separator, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _json(cell) if isinstance(cell, list | dict) else cell for name, cell in row.items()})
    return text.getvalue().encode()


def _parquet(rows: Rows) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, buffer = _names(rows), io.BytesIO()
    try:
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), buffer)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise UserError(
            f"the rows fit no Parquet file ({one_line(error)}); choose an --out that ends in .jsonl"
        ) from None
    return buffer.getvalue()


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": functools.partial(_separated, separator=","),
    ".tsv": functools.partial(_separated, separator="\t"),
    ".parquet": _parquet,
}
"""By the ending of a file's name."""
