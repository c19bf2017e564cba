"""Writes the model of a run as a directory that `transformers` opens.

    python -m pipeline.export --run runs/base --out albert-base

The newest complete checkpoint of a pre-training run is taken, the best of a fine-tuning run; one process is enough,
whatever number of ranks wrote it.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep import atomic
from data_prep.command_line import Parser
from data_prep.errors import UserError
from model import AlbertConfig, AlbertForPreTraining, checkpoint, huggingface
from pipeline import checkpoint_files, checkpoints, runs
from pipeline.heads import FinetunedModel, make_model
from pipeline.initial import HEAD_FILE
from pipeline.tasks.task import Task, find_task


def load_model(run: Path) -> AlbertForPreTraining:
    """The model of a run's newest complete checkpoint, fp32, in evaluation mode.

    Raises:
        UserError: `run` holds no run, or no checkpoint yet.
    """
    model = AlbertForPreTraining(AlbertConfig.from_dict(runs.read_settings(run)["model"]))
    model.load_state_dict(checkpoints.load_weights(run / "checkpoints"))
    return model.eval()


def load_finetuned(run: Path) -> FinetunedModel:
    """The model of a fine-tuning run's best step, fp32, in evaluation mode.

    Raises:
        UserError: `run` holds no run, or no checkpoint yet.
    """
    settings = runs.read_settings(run)
    model = make_model(find_task(settings["task"]), AlbertConfig.from_dict(settings["model"]))
    model.load_state_dict(checkpoints.load_weights(best_checkpoint(run)))
    return model.eval()


def best_checkpoint(run: Path) -> Path:
    """The checkpoint of a run with the best score; the newest where none was evaluated. UserError: there is none."""
    found = checkpoint_files.find_best(run / "checkpoints") or checkpoints.find_latest(run / "checkpoints")
    if found is None:
        raise UserError(f"{run / 'checkpoints'} holds no complete checkpoint; train first, or name another run")
    return found


def export_run(run: Path, out: Path) -> str:
    """Writes the model of `run` to `out`, which is never seen half-written.

    Returns:
        What was written, for a person: the Hugging Face layout, or the project's own where `transformers` has no model
        that shares parameters in the same way.
    Raises:
        UserError: as `load_model`, or `out` is not writable.
    """
    task = runs.read_settings(run).get("task")
    model = load_model(run) if task is None else load_finetuned(run)
    fields = None if task is None else head_fields(find_task(task))
    try:
        with atomic.replacing_directory(out) as temporary:
            shares_alike = model.config.num_attention_blocks == model.config.num_ffn_blocks
            if shares_alike and (fields is None or "architectures" in fields):
                huggingface.save(model, temporary, run / "spiece.model", fields)
                return "in the Hugging Face layout"
            if fields is not None:
                atomic.write_text(temporary / HEAD_FILE, json.dumps(fields, indent=2) + "\n")
            checkpoint.save(model, temporary)
            shutil.copyfile(run / "spiece.model", temporary / "spiece.model")
            lacking = "has no such head" if shares_alike else f"cannot share {model.config.parameter_sharing!r} alone"
            return f"in the project's own format: transformers {lacking}"
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another place") from None


def head_fields(task: Task) -> dict[str, Any]:
    """What config.json says of a task's head, in the words of `transformers`; no "architectures" where it has none."""
    fields: dict[str, Any] = {"finetuning_task": task.name}
    if task.kind == "conditioned_spans":
        return fields
    if task.kind == "spans":
        return fields | {"architectures": ["AlbertForQuestionAnswering"]}
    if task.kind == "choice":
        return fields | {"architectures": ["AlbertForMultipleChoice"]}
    kind = "regression" if task.kind == "regression" else "single_label_classification"
    labels = task.labels or ("similarity",)
    return fields | {
        "architectures": ["AlbertForSequenceClassification"],
        "problem_type": kind,
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def _is_export(directory: Path) -> bool:
    """Whether an export may take the place of what is there: an earlier export, or nothing."""
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else {"a file"}
    return not names or bool(names & {"config.json", "albert.json"})


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = Parser(prog="python -m pipeline.export", description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of a run")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory to write")
    try:
        args = parser.parse_all(sys.argv[1:] if argv is None else argv)
        if args.out.exists() and not _is_export(args.out):
            raise UserError(f"--out {args.out} holds other files; choose another place")
        form = export_run(args.run, args.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {args.out} {form}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
