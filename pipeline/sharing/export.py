"""Exports checkpoints as directories: the model, its vocabulary, a model card and, if wanted, an ONNX graph."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError

from common.errors import UserError, one_line
from common.files import atomic, owned
from data_prep.text.vocabulary import VOCABULARY_FILES, Vocabulary, find_vocabulary
from model import checkpoint, huggingface
from model.onnx_export import missing_packages, output_names, save_onnx
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.initial_weights import HEAD_FILE, restore_file_ids
from pipeline.checkpoint.retention import step_of
from pipeline.sharing.card import CARD, CardOptions, Exported, model_card
from pipeline.sharing.trained_run import TrainedRun, open_run

ONNX_FILE = "model.onnx"
FILES = (
    *(huggingface.CONFIG_FILE, huggingface.WEIGHTS_FILE, *VOCABULARY_FILES),
    *("tokenizer_config.json", checkpoint.CONFIG_FILE, checkpoint.WEIGHTS_FILE, HEAD_FILE),
    *(CARD, ONNX_FILE),
)
"""The names of all files that an export of one checkpoint may have."""


@dataclass(frozen=True)
class ExportOptions:
    """What is exported beside the model.

    Attributes:
        card: what a person says of the model.
        onnx: whether to write an ONNX graph.
        repository: OWNER/NAME on the hub, for the card; None if the export is not pushed.
    """

    card: CardOptions = field(default_factory=CardOptions)
    onnx: bool = False
    repository: str | None = None

    def check(self) -> None:
        """Raises UserError if a package for ONNX is missing."""
        if self.onnx and (missing := missing_packages()):
            raise UserError(
                f"--onnx needs the package {' and '.join(missing)}; "
                "pip install 'albert-pretraining[onnx]', or leave the flag out"
            )


def export_usual(run: Path, out: Path) -> str:
    """Exports the usual checkpoint of the run in a directory. See `export_one`."""
    trained = open_run(run)
    return export_one(trained, trained.usual(), out)


def export_one(run: TrainedRun, tag: Path, out: Path, options: ExportOptions | None = None) -> str:
    """Writes the model of the checkpoint `tag` to the directory `out`, which is never visible half-written.

    Returns:
        The format, for people: the Hugging Face layout, or the project's own if `transformers` has no such model.
    Raises:
        UserError: `out` cannot be written, or a record of the run is damaged.
    """
    with _directory(out) as temporary:
        return _write(run, tag, temporary, _name(run, out), options or ExportOptions())


def export_each(run: TrainedRun, tags: Sequence[Path], out: Path, options: ExportOptions | None = None) -> str:
    """Writes each checkpoint to a directory of its own below `out`, such as step-1000. See `export_one`."""
    options = options or ExportOptions()
    form = ""
    with _directory(out) as temporary:
        for tag in tags:
            revision = revision_of(tag)
            (temporary / revision).mkdir()
            name = f"{_name(run, out)}, step {step_of(tag):,}"
            form = _write(run, tag, temporary / revision, name, options, revision)
    return form


def _name(run: TrainedRun, out: Path) -> str:
    """The title of the card. The directory "export" of a run has the run's name."""
    place = out.resolve()
    return run.directory.resolve().name if place.parent == run.directory.resolve() else place.name


def revision_of(tag: Path) -> str:
    """The name of a checkpoint's directory in an export of all, and of its branch on the hub, such as step-1000."""
    return f"step-{step_of(tag)}"


@contextmanager
def _directory(out: Path) -> Iterator[Path]:
    """`owned.replacing_directory`, whose I/O errors are UserErrors."""
    try:
        with owned.replacing_directory(out, run_directory.EXPORT_TOOL) as temporary:
            yield temporary
    except UserError:
        raise
    except ValueError as error:  # the vocabulary is damaged, or another one
        raise UserError(str(error)) from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {out}: {one_line(error)}; choose another place") from None


def _write(
    run: TrainedRun, tag: Path, directory: Path, name: str, options: ExportOptions, revision: str | None = None
) -> str:
    """Writes the files of one export into `directory`. Returns the format, for people."""
    model, task, vocabulary_file = run.load(tag), run.task, find_vocabulary(run.directory)
    vocabulary = Vocabulary.load(vocabulary_file)
    head = None if task is None else task.kind.head_fields(task)
    if options.onnx:
        output_names(model)  # raises before anything is written
    shares_alike = model.config.num_attention_blocks == model.config.num_ffn_blocks
    in_layout = shares_alike and (task is None or task.kind.architecture is not None)
    if in_layout:
        restore_file_ids(model, vocabulary)
        huggingface.save(model, directory, vocabulary_file, head)
        form = "in the Hugging Face layout"
    else:
        if head is not None:
            atomic.write_text(directory / HEAD_FILE, json.dumps(head, indent=2) + "\n")
        checkpoint.save(model, directory)
        shutil.copyfile(vocabulary_file, directory / vocabulary.file_name)
        lacking = "has no such head" if shares_alike else f"cannot share {model.config.parameter_sharing!r} alone"
        form = f"in the project's own format: transformers {lacking}"
    if options.onnx:
        save_onnx(model, directory / ONNX_FILE)
    exported = Exported(
        run=run.directory,
        step=step_of(tag),
        name=name,
        config=model.config,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        normalization=vocabulary.normalization,
        task=task,
        in_layout=in_layout,
        has_onnx=options.onnx,
        repository=options.repository,
        revision=revision,
    )
    atomic.write_text(directory / CARD, model_card(exported, options.card))
    return form
